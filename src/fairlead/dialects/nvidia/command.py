"""`fairlead nvidia …`: from a command line, an environment and a config file to a configuration of ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fairlead.backends.nvidia.faults import xids_from_env
from fairlead.backends.nvidia.spec import IGNORED_XIDS
from fairlead.dialects.invocation import Invocation, Program, Translation, read_flags
from fairlead.dialects.nvidia import v1
from fairlead.dialects.nvidia.flags import FLAGS, NAME, OWN
from fairlead.dialects.nvidia.selections import in_force
from fairlead.dialects.nvidia.settings import settle
from fairlead.dialects.nvidia.translate import translate


class NvidiaInvocation(Invocation, frozen=True):
    @property
    def source(self) -> str:
        return str(self.parsed.values["config-file"]) or NAME

    def translate(self) -> Translation:
        lenient = bool(self.parsed.values["lenient"])
        file, dropped = in_force(v1.load(str(self.parsed.values["config-file"]), lenient=lenient), lenient=lenient)
        health, warnings = _health(self.environ)
        made = translate(settle(self.parsed, file), health, self.source)
        return Translation(made.config, (*warnings, *dropped, *made.notes))


def read_command_line(args: Sequence[str], environ: Mapping[str, str]) -> NvidiaInvocation:
    """BadFlag for what cannot be understood."""
    return NvidiaInvocation(read_flags((*FLAGS, *OWN), args, environ, "--pass-device-specs=false"), environ)


def _health(environ: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    off, on = (environ.get(f"DP_{word}_HEALTHCHECKS", "") for word in ("DISABLE", "ENABLE"))
    ignored, watched, warnings = xids_from_env(off, on)
    health: dict[str, Any] = {}
    if ignored != IGNORED_XIDS:
        health["ignoredXids"] = ignored if isinstance(ignored, str) else list(ignored)
    if watched:
        health["watchedXids"] = list(watched)
    return health, warnings


PROGRAM = Program(
    NAME,
    "NVIDIA's device plugin: its flags, environment and config file, on Fairlead's engine.",
    (*FLAGS, *OWN),
    read_command_line,
    config_flag="config-file",
)

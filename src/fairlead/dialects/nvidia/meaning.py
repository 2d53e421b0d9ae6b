"""What `fairlead nvidia …` means: from a command line and an environment to a configuration of ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fairlead.backends.nvidia.faults import xids_from_env
from fairlead.backends.nvidia.spec import IGNORED_XIDS
from fairlead.dialects.nvidia import v1
from fairlead.dialects.nvidia.flags import FLAGS, OWN, PROGRAM
from fairlead.dialects.nvidia.offers import in_force
from fairlead.dialects.nvidia.settings import find_whence, resolve, settle
from fairlead.dialects.nvidia.translate import translate
from fairlead.dialects.order import Meant, Order, places_of, read_flags


class NvidiaOrder(Order, frozen=True):
    @property
    def source(self) -> str:
        return str(self.parsed.values["config-file"]) or PROGRAM

    def meant(self) -> Meant:
        values = self.parsed.values
        lenient = bool(values["lenient"])
        path = str(values["config-file"])
        file, dropped = in_force(v1.load(path, lenient=lenient) if path else v1.EMPTY, lenient=lenient)
        whence = find_whence(FLAGS, self.parsed, file, path)
        settings = settle(resolve(FLAGS, self.parsed, file), file, PROGRAM, lenient=lenient, whence=whence)
        health, warnings = _health(self.environ)
        whole = bool(values["also-whole"])
        meant = translate(settings, health, places_of(self.parsed), self.source, also_whole=whole)
        return Meant(meant.config, (*warnings, *dropped, *meant.notes))


def read(args: Sequence[str], environ: Mapping[str, str]) -> NvidiaOrder:
    """BadFlag for what cannot be understood."""
    return NvidiaOrder(read_flags((*FLAGS, *OWN), args, environ, "--pass-device-specs=false"), environ)


def _health(environ: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    off, on = (environ.get(f"DP_{word}_HEALTHCHECKS", "") for word in ("DISABLE", "ENABLE"))
    ignored, watched, warnings = xids_from_env(off, on)
    health: dict[str, Any] = {}
    if ignored != IGNORED_XIDS:
        health["ignoredXids"] = ignored if isinstance(ignored, str) else list(ignored)
    if watched:
        health["watchedXids"] = list(watched)
    return health, warnings

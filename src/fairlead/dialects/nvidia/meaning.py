"""What `fairlead nvidia …` means: from a command line and an environment to a configuration of ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from fairlead.backends.nvidia.faults import xids_from_env
from fairlead.backends.nvidia.spec import IGNORED_XIDS
from fairlead.dialects import goflags
from fairlead.dialects.goflags import BadFlag, Parsed
from fairlead.dialects.nvidia import v1
from fairlead.dialects.nvidia.flags import FLAGS, OWN
from fairlead.dialects.nvidia.settings import resolve, settle
from fairlead.dialects.nvidia.translate import Meant, Places, translate

SOURCE = "fairlead nvidia"


class Order(Struct, frozen=True):
    """A command line, read. Its config file is read anew whenever somebody asks what it means."""

    parsed: Parsed
    environ: Mapping[str, str]

    @property
    def own(self) -> Mapping[str, Any]:
        return {flag.name: self.parsed.values[flag.name] for flag in OWN}

    @property
    def source(self) -> str:
        """Whose fault it is, for errors; and the file to watch, if there is one."""
        return str(self.parsed.values["config-file"]) or SOURCE

    def meant(self) -> Meant:
        lenient = bool(self.own["lenient"])
        path = str(self.parsed.values["config-file"])
        file = v1.load(path, lenient=lenient) if path else v1.EMPTY
        settings = settle(resolve(FLAGS, self.parsed, file), file, self.source, lenient=lenient)
        health, warnings = _health(self.environ)
        places = Places(*(str(self.own[name]) for name in ("plugin-dir", "status-socket", "pod-resources")))
        meant = translate(settings, health, places, self.source, also_whole=bool(self.own["also-whole"]))
        return Meant(meant.config, (*warnings, *meant.notes))


def read(args: Sequence[str], environ: Mapping[str, str]) -> Order:
    """BadFlag for what cannot be understood."""
    parsed = goflags.parse((*FLAGS, *OWN), args, environ)
    if parsed.rest and not parsed.values["lenient"]:
        raise BadFlag(
            f"{parsed.rest[0]!r} is no flag: it and all after it would be passed over. "
            "A flag's value is joined to it with '=', such as --pass-device-specs=false"
        )
    return Order(parsed, environ)


def _health(environ: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    off, on = (environ.get(f"DP_{word}_HEALTHCHECKS", "") for word in ("DISABLE", "ENABLE"))
    ignored, watched, warnings = xids_from_env(off, on)
    health: dict[str, Any] = {}
    if ignored != IGNORED_XIDS:
        health["ignoredXids"] = ignored if isinstance(ignored, str) else list(ignored)
    if watched:
        health["watchedXids"] = list(watched)
    return health, warnings

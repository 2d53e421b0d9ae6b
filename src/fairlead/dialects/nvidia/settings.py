"""What NVIDIA's plugin would run with: flags over environment over config file over defaults, and checked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from fairlead.dialects.configfile import BadFile
from fairlead.dialects.goflags import Parsed
from fairlead.dialects.invocation import blame, find_refused, merge
from fairlead.dialects.nvidia.flags import FLAGS, NAME
from fairlead.dialects.nvidia.v1 import V1, Sharing

_CDI = frozenset({"cdi-annotations", "cdi-cri"})
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/")


class Settings(Struct, frozen=True):
    parsed: Parsed  # with what the config file has
    file: V1

    def __getitem__(self, name: str) -> Any:
        """The value of a flag."""
        return self.parsed.values[name]

    @property
    def lenient(self) -> bool:
        return bool(self["lenient"])

    @property
    def sharing(self) -> tuple[str, Sharing | None]:
        return self.file.sharing


def settle(parsed: Parsed, file: V1) -> Settings:
    """BadFile names everything that cannot work."""
    merged = merge(FLAGS, parsed, file.flags, str(parsed.values["config-file"]))
    plain = {name: tuple(filter(None, merged.values[name])) for name in ("cdi-feature-flags", "cdi-disable-hooks")}
    made = Settings(replace(merged, values=merged.values | plain), file)  # an empty variable names nothing
    problems = [*find_refused(FLAGS, made.parsed, lenient=made.lenient)]
    problems += [blame(made.parsed, name, text) for name, text in _find_wrong(made)]
    if not made.lenient:
        problems += [blame(made.parsed, name, text) for name, text in _find_odd(made)]
        if file.mps is not None and file.time_slicing is not None:
            text = "sharing has both mps and timeSlicing: only one can be in force. Remove one of them"
            problems.append(f"{made['config-file']}: {text}")
    if problems:
        raise BadFile(NAME, problems)
    return made


def _find_wrong(settings: Settings) -> Iterator[tuple[str, str]]:
    """What NVIDIA's plugin refuses too, with its error text and a way out: the flag, and the problem."""
    root, socket, channels = settings["mps-root"], settings["kubelet-socket"], settings["imex-channel-ids"]
    if settings.sharing[0] == "mps":
        if settings["mig-strategy"] == "mixed":
            text = "using --mig-strategy=mixed is not supported with MPS. Use time-slicing, or another strategy"
            yield "mig-strategy", text
        if not root:
            yield "mps-root", "using MPS requires --mps-root to be specified, such as /run/nvidia/mps"
        elif not root.startswith("/"):
            # NVIDIA's plugin serves with it, and no container starts: a runtime refuses such a mount.
            yield "mps-root", f"--mps-root {root!r} is not an absolute path"
    hooks = "all" not in settings["cdi-disable-hooks"] and _CDI & set(settings["device-list-strategy"])
    if hooks and not settings["nvidia-cdi-hook-path"]:
        text = "--nvidia-cdi-hook-path is empty: a CDI spec with a hook needs its program. Name it, such as "
        yield "nvidia-cdi-hook-path", f"{text}/usr/bin/nvidia-cdi-hook"
    if channels not in {(), (0,)}:
        text = "invalid IMEX channel IDs: invalid IMEX config: channelIDs must be [] or [0]; found"
        yield "imex-channel-ids", f"{text} [{' '.join(map(str, channels))}]"
    if socket and not socket.startswith("/"):
        yield "kubelet-socket", f"--kubelet-socket {socket!r} is not an absolute path"


def _find_odd(settings: Settings) -> Iterator[tuple[str, str]]:
    """What NVIDIA's plugin takes, and what then works in silence or not at all."""
    strategies, prefix = settings["device-list-strategy"], settings["cdi-annotation-prefix"]
    if not strategies:
        text = "deviceListStrategy is empty: containers would start without a GPU. Name at least one strategy"
        yield "device-list-strategy", text
    if "cdi-annotations" in strategies and not _PREFIX.fullmatch(prefix):
        text = f"--cdi-annotation-prefix {prefix!r} is no domain with a '/' at its end, such as cdi.k8s.io/"
        yield "cdi-annotation-prefix", f"{text}: the runtime would not find the annotation"
    for name in ("driver-root", "driver-root-ctr-path"):
        if (path := settings[name]) and not path.startswith("/"):
            yield name, f"--{name} {path!r} is not an absolute path"

"""What NVIDIA's plugin would run with: flags over environment over config file over defaults, and checked."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from fairlead.dialects.goflags import Flag, Parsed
from fairlead.dialects.nvidia.v1 import V1, BadFile, Sharing

CDI_WAYS = frozenset({"cdi-annotations", "cdi-cri"})
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/")


class Settings(Struct, frozen=True):
    """By the names of the flags, in our spelling."""

    mig_strategy: str
    fail_on_init_error: bool
    driver_root: str
    dev_root: str
    pass_device_specs: bool
    device_list_strategy: tuple[str, ...]
    device_id_strategy: str
    gdrcopy_enabled: bool
    gds_enabled: bool
    mofed_enabled: bool
    cdi_annotation_prefix: str
    nvidia_cdi_hook_path: str
    driver_root_ctr_path: str
    mps_root: str
    shared_devices_allocation_policy: str
    device_discovery_strategy: str
    imex_channel_ids: tuple[int, ...]
    imex_required: bool
    kubelet_socket: str
    cdi_feature_flags: tuple[str, ...]
    cdi_disable_hooks: tuple[str, ...]
    file: V1
    lenient: bool = False
    whence: Mapping[str, str] = {}  # how a value was given: the flag, the variable, or the file and its key

    def at(self, name: str, problem: str) -> str:
        """A problem with a value, and where to change it. NVIDIA's own words name the flag already."""
        given = self.whence.get(name, "")
        return problem if not given or given.startswith("--") else f"{given}: {problem}"

    @property
    def sharing(self) -> tuple[str, Sharing | None]:
        return self.file.sharing


def resolve(flags: Sequence[Flag], parsed: Parsed, file: V1) -> dict[str, Any]:
    """Each flag's value: given, else the file's, else its default."""
    return {
        flag.name.replace("-", "_"): (
            file.flags[flag.key]
            if flag.key in file.flags and flag.name not in parsed.given
            else parsed.values[flag.name]
        )
        for flag in flags
    }


def find_whence(flags: Sequence[Flag], parsed: Parsed, file: V1, path: str) -> dict[str, str]:
    """How each value that is not a default was given, as people wrote it."""
    found = {flag.name: f"{path}: {flag.key}" for flag in flags if flag.key in file.flags}
    return {"file": path} | {name.replace("-", "_"): given for name, given in (found | parsed.source).items()}


def settle(
    values: Mapping[str, Any], file: V1, source: str, *, lenient: bool, whence: Mapping[str, str] | None = None
) -> Settings:
    """BadFile names everything that cannot work."""
    kept = {key: value for key, value in values.items() if key in Settings.__struct_fields__}
    kept["mps_root"] = kept["mps_root"] or ""
    kept["imex_channel_ids"] = tuple(kept["imex_channel_ids"] or ())
    kept["device_list_strategy"] = tuple(kept["device_list_strategy"] or ())
    for key in ("cdi_feature_flags", "cdi_disable_hooks"):
        kept[key] = tuple(word for word in kept[key] or () if word)  # an empty variable names nothing
    made = Settings(**kept, file=file, lenient=lenient, whence=whence or {})
    problems = [*_wrong(made), *(() if lenient else _odd(made))]
    if problems:
        raise BadFile(source, problems)
    return made


def _wrong(settings: Settings) -> list[str]:
    """What NVIDIA's plugin refuses too, in its words and with a way out."""
    problems = [
        settings.at(
            "device_list_strategy",
            f"invalid --device-list-strategy option: invalid strategy: {word}. "
            "Use some of envvar, volume-mounts, cdi-annotations, cdi-cri",
        )
        for word in settings.device_list_strategy
        if word not in {"envvar", "volume-mounts", *CDI_WAYS}
    ]
    checks: list[tuple[str, str, tuple[str, ...]]] = [
        ("device_id_strategy", "invalid --device-id-strategy option:", ("uuid", "index")),
        (
            "shared_devices_allocation_policy",
            "invalid --shared-devices-allocation-policy option:",
            ("distributed", "packed"),
        ),
        ("device_discovery_strategy", "invalid --device-discovery-strategy option", ("auto", "nvml", "tegra")),
        ("mig_strategy", "unknown MIG strategy:", ("none", "single", "mixed")),
    ]
    problems += [
        settings.at(name, f"{text} {value}. Use {' or '.join(words)}")
        for name, text, words in checks
        if (value := getattr(settings, name)) not in words
    ]
    if settings.sharing[0] == "mps":
        if settings.mig_strategy == "mixed":
            text = "using --mig-strategy=mixed is not supported with MPS. Use time-slicing, or another strategy"
            problems.append(settings.at("mig_strategy", text))
        if not settings.mps_root:
            text = "using MPS requires --mps-root to be specified, such as /run/nvidia/mps"
            problems.append(settings.at("mps_root", text))
        elif not settings.mps_root.startswith("/"):
            # NVIDIA's plugin serves with it, and no container starts: a runtime refuses such a mount.
            text = f"--mps-root {settings.mps_root!r} is not an absolute path"
            problems.append(settings.at("mps_root", text))
    hooks = "all" not in settings.cdi_disable_hooks and CDI_WAYS & set(settings.device_list_strategy)
    if hooks and not settings.nvidia_cdi_hook_path:
        text = "--nvidia-cdi-hook-path is empty: a CDI spec with a hook needs its program. Name it, such as "
        problems.append(settings.at("nvidia_cdi_hook_path", f"{text}/usr/bin/nvidia-cdi-hook"))
    if settings.imex_channel_ids not in {(), (0,)}:
        found = " ".join(map(str, settings.imex_channel_ids))
        text = f"invalid IMEX channel IDs: invalid IMEX config: channelIDs must be [] or [0]; found [{found}]"
        problems.append(settings.at("imex_channel_ids", text))
    if settings.kubelet_socket and not settings.kubelet_socket.startswith("/"):
        text = f"--kubelet-socket {settings.kubelet_socket!r} is not an absolute path"
        problems.append(settings.at("kubelet_socket", text))
    return problems


def _odd(settings: Settings) -> list[str]:
    """What NVIDIA's plugin takes, and what then works in silence or not at all."""
    tests: list[tuple[bool, str, str]] = [
        (
            not settings.device_list_strategy,
            "device_list_strategy",
            "deviceListStrategy is empty: containers would start without a GPU. Name at least one strategy",
        ),
        (
            settings.file.mps is not None and settings.file.time_slicing is not None,
            "file",
            "sharing has both mps and timeSlicing: only one can be in force. Remove one of them",
        ),
        (
            "cdi-annotations" in settings.device_list_strategy
            and not _PREFIX.fullmatch(settings.cdi_annotation_prefix),
            "cdi_annotation_prefix",
            (
                f"--cdi-annotation-prefix {settings.cdi_annotation_prefix!r} is no domain with a '/' at its end, such "
                "as cdi.k8s.io/: the runtime would not find the annotation"
            ),
        ),
        *(
            (not path.startswith("/"), name, f"--{name.replace('_', '-')} {path!r} is not an absolute path")
            for name in ("driver_root", "driver_root_ctr_path")
            if (path := getattr(settings, name))
        ),
    ]
    problems = [settings.at(name, text) for wrong, name, text in tests if wrong]
    known = {
        "cdi_feature_flags": {
            "enable-explicit-driver-libraries",
            "disable-nvsandboxutils",
            "disable-nvsandbox-utils",
            "enable-coherent-annotations",
            "disable-multiple-csv-devices",
            "no-additional-gids-for-device-nodes",
            "disable-ipc-discoverer",
        },
        "cdi_disable_hooks": {
            "all",
            "chmod",
            "create-symlinks",
            "disable-device-node-modification",
            "enable-cuda-compat",
            "update-application-profile",
            "update-ldcache",
        },
    }
    for name, words in known.items():
        choice = ", ".join(sorted(words))
        problems += [
            settings.at(name, f"--{name.replace('_', '-')}: unknown word {word!r}. Use some of {choice}")
            for word in getattr(settings, name)
            if word not in words
        ]
    return problems

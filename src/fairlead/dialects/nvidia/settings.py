"""What NVIDIA's plugin would run with: flags over environment over config file over defaults, and checked."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
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

    @property
    def sharing(self) -> tuple[str, Sharing | None]:
        """The block that counts, and its kind."""
        if self.file.mps is not None:
            return "mps", self.file.mps
        return ("time-slicing", self.file.time_slicing) if self.file.time_slicing else ("none", None)


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


def settle(values: Mapping[str, Any], file: V1, source: str, *, lenient: bool) -> Settings:
    """BadFile names everything that cannot work."""
    kept = {key: value for key, value in values.items() if key in Settings.__struct_fields__}
    kept["mps_root"] = kept["mps_root"] or ""
    kept["imex_channel_ids"] = tuple(kept["imex_channel_ids"] or ())
    for key in ("device_list_strategy", "cdi_feature_flags", "cdi_disable_hooks"):
        kept[key] = tuple(kept[key] or ())
    made = Settings(**kept, file=file, lenient=lenient)
    problems = [*_wrong(made), *(() if lenient else _odd(made))]
    if problems:
        raise BadFile(source, problems)
    return made


def _wrong(settings: Settings) -> list[str]:
    """What NVIDIA's plugin refuses too, in its words and with a way out."""
    problems = [
        f"invalid --device-list-strategy option: invalid strategy: {word}. "
        "Use some of envvar, volume-mounts, cdi-annotations, cdi-cri"
        for word in settings.device_list_strategy
        if word not in {"envvar", "volume-mounts", *CDI_WAYS}
    ]
    checks: list[tuple[str, str, tuple[str, ...]]] = [
        ("invalid --device-id-strategy option:", settings.device_id_strategy, ("uuid", "index")),
        (
            "invalid --shared-devices-allocation-policy option:",
            settings.shared_devices_allocation_policy,
            ("distributed", "packed"),
        ),
        ("invalid --device-discovery-strategy option", settings.device_discovery_strategy, ("auto", "nvml", "tegra")),
        ("unknown MIG strategy:", settings.mig_strategy, ("none", "single", "mixed")),
    ]
    problems += [f"{text} {value}. Use {' or '.join(words)}" for text, value, words in checks if value not in words]
    if settings.sharing[0] == "mps":
        if settings.mig_strategy == "mixed":
            problems.append(
                "using --mig-strategy=mixed is not supported with MPS. Use time-slicing, or another strategy"
            )
        if not settings.mps_root:
            problems.append("using MPS requires --mps-root to be specified, such as /run/nvidia/mps")
    if settings.imex_channel_ids not in {(), (0,)}:
        found = " ".join(map(str, settings.imex_channel_ids))
        problems.append(f"invalid IMEX channel IDs: invalid IMEX config: channelIDs must be [] or [0]; found [{found}]")
    return problems


def _odd(settings: Settings) -> list[str]:
    """What NVIDIA's plugin takes, and what then works in silence or not at all."""
    tests: list[tuple[Callable[[], bool], str]] = [
        (
            lambda: not settings.device_list_strategy,
            "deviceListStrategy is empty: containers would start without a GPU. Name at least one strategy",
        ),
        (
            lambda: settings.file.mps is not None and settings.file.time_slicing is not None,
            "sharing has both mps and timeSlicing: only one can be in force. Remove one of them",
        ),
        (
            lambda: (
                bool(set(settings.device_list_strategy) & {"cdi-annotations"})
                and not _PREFIX.fullmatch(settings.cdi_annotation_prefix)
            ),
            (
                f"--cdi-annotation-prefix {settings.cdi_annotation_prefix!r} is no domain with a '/' at its end, such "
                "as cdi.k8s.io/: the runtime would not find the annotation"
            ),
        ),
        (
            lambda: bool(settings.driver_root) and not settings.driver_root.startswith("/"),
            f"--driver-root {settings.driver_root!r} is not an absolute path",
        ),
        (
            lambda: bool(settings.kubelet_socket) and not settings.kubelet_socket.startswith("/"),
            f"--kubelet-socket {settings.kubelet_socket!r} is not an absolute path",
        ),
    ]
    problems = [text for test, text in tests if test()]
    known = {
        "cdi-feature-flags": (
            settings.cdi_feature_flags,
            {
                "enable-explicit-driver-libraries",
                "disable-nvsandboxutils",
                "disable-nvsandbox-utils",
                "enable-coherent-annotations",
                "disable-multiple-csv-devices",
                "no-additional-gids-for-device-nodes",
                "disable-ipc-discoverer",
            },
        ),
        "cdi-disable-hooks": (
            settings.cdi_disable_hooks,
            {
                "all",
                "chmod",
                "create-symlinks",
                "disable-device-node-modification",
                "enable-cuda-compat",
                "update-application-profile",
                "update-ldcache",
            },
        ),
    }
    for flag, (given, words) in known.items():
        problems += [
            f"--{flag}: nobody knows {word!r}. Use some of {', '.join(sorted(words))}"
            for word in given
            if word not in words
        ]
    return problems

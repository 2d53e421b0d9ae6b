"""Records: what one look at the driver saw, in plain values. Knows nothing of NVML and nothing of Kubernetes."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

CAPS = "/dev/nvidia-caps"


class Platform(StrEnum):
    """What a machine is, as far as GPUs go."""

    NVML = "nvml"  # a driver with NVML: servers and workstations
    WSL = "wsl"  # Linux below Windows: one node for all GPUs
    TEGRA = "tegra"  # a system on a chip: one GPU without a driver library
    NODES = "nodes"  # a driver of which only the device nodes are looked at


class MigAttributes(Struct, frozen=True):
    """What a MIG instance has. Two instances are of one kind when all of this is equal."""

    multiprocessors: int = 0
    copy_engines: int = 0
    decoders: int = 0
    encoders: int = 0
    jpegs: int = 0
    ofas: int = 0
    gi_slices: int = 0
    ci_slices: int = 0
    memory_mib: int = 0


class MigDevice(Struct, frozen=True):
    """A MIG instance: a compute instance inside a GPU instance."""

    uuid: str
    index: int  # on its GPU; there may be holes
    gi: int
    ci: int
    profile: str = ""  # as NVML and people spell it: 1g.5gb, 1c.2g.10gb, 1g.10gb+me
    slice: MigAttributes = MigAttributes()
    memory_bytes: int = 0
    gi_cap: int | None = None  # minor numbers of the capability nodes; None: not listed by the driver
    ci_cap: int | None = None
    placement: str = ""  # first memory slice and how many: "0:2"; empty where unknown

    @property
    def cap_paths(self) -> tuple[str, ...]:
        return tuple(f"{CAPS}/nvidia-cap{minor}" for minor in (self.gi_cap, self.ci_cap) if minor is not None)

    @property
    def resource_profile(self) -> str:
        """The profile as it may stand in a resource's name."""
        return self.profile.replace("+", ".")


class Gpu(Struct, frozen=True):
    uuid: str
    index: int  # as NVML counts
    minor: int
    bus_id: str = ""  # as sysfs spells it: 0000:3b:00.0
    name: str = ""
    memory_bytes: int = 0
    cc: str = ""  # compute capability: 8.0
    numa: int | None = None
    mig_capable: bool = False
    mig_enabled: bool = False
    migs: tuple[MigDevice, ...] = ()
    coherent: bool = False  # its memory is a NUMA node of the host (addressing mode ATS)

    @property
    def path(self) -> str:
        return f"/dev/nvidia{self.minor}"


class Snapshot(Struct, frozen=True):
    """One look at everything. `problems` are those of single GPUs."""

    platform: Platform
    gpus: tuple[Gpu, ...] = ()  # those that answer
    lost: tuple[Gpu, ...] = ()  # as they last were: still there, and without an answer
    driver_version: str = ""
    cuda_version: int = 0  # 12040 for 12.4
    library: str = ""  # where NVML was found
    problems: tuple[str, ...] = ()

"""What a simulated GPU is made of: plain values, and the lines that describe them to the library.

Must not know files, processes or the catalogue of models.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

ALL_EVENTS = 0x1F  # XID, ECC and the power and clock events that every data centre GPU reports
GPU_LINK, SWITCH_LINK = 0, 2

# What a profile's constant says besides its size, in the way NVIDIA writes it.
MARKS = {
    7: "+me",
    8: "+me",
    10: "+gfx",
    11: "+gfx",
    12: "+gfx",
    13: "-me",
    14: "-me",
    15: "+me.all",
    16: "+me.all",
    17: "+gfx",
}


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU instance that could be made."""

    constant: int  # NVML_GPU_INSTANCE_PROFILE_*
    id: int
    slices: int
    instances: int
    multiprocessors: int
    copy_engines: int = 0
    decoders: int = 0
    encoders: int = 0
    jpegs: int = 0
    ofas: int = 0
    memory_mb: int
    placements: tuple[tuple[int, int], ...] = ()  # start and size, in memory slices

    def named(self, total_bytes: int) -> str:
        return f"{self.slices}g.{_gigabytes(self.memory_mb, total_bytes)}gb{MARKS.get(self.constant, '')}"


class Mig(msgspec.Struct, frozen=True, kw_only=True):
    """A MIG device: a compute instance in a GPU instance."""

    index: int
    uuid: str
    gi: int
    ci: int = 0
    gi_profile: int
    ci_profile: int
    gi_slices: int
    ci_slices: int
    multiprocessors: int
    copy_engines: int = 0
    decoders: int = 0
    encoders: int = 0
    jpegs: int = 0
    ofas: int = 0
    memory_mb: int
    memory_used: int = 0
    gi_start: int = 0
    gi_size: int = 0
    ci_start: int = 0
    ci_size: int = 0

    def profile(self, total_bytes: int) -> str:
        part = "" if self.ci_slices == self.gi_slices else f"{self.ci_slices}c."
        return f"{part}{self.gi_slices}g.{_gigabytes(self.memory_mb, total_bytes)}gb{MARKS.get(self.gi_profile, '')}"


class Link(msgspec.Struct, frozen=True):
    number: int
    remote: str  # the PCI bus id at the other end
    up: bool = True
    kind: int = GPU_LINK


class Process(msgspec.Struct, frozen=True):
    pid: int
    memory: int = 0
    gi: int = 0xFFFFFFFF
    ci: int = 0xFFFFFFFF


class Fabric(msgspec.Struct, frozen=True, kw_only=True):
    cluster: str  # 16 bytes in hexadecimal
    clique: int
    state: int = 3  # completed
    status: int = 0
    health: int = 0


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers that NVML calls by another name are described in c/sim.h."""

    uuid: str
    name: str
    bus_id: str  # as NVML writes it: 00000000:3B:00.0
    minor: int
    serial: str = ""
    device_id: int = 0
    subsystem_id: int = 0x134F10DE
    pci_class: int = 0x030200
    memory_total: int
    memory_reserved: int = 0
    memory_free: int = 0
    memory_used: int = 0
    cc_major: int = 8
    cc_minor: int = 0
    architecture: int = 7
    brand: int = 14
    mig_capable: bool = False
    mig_current: int = 0
    mig_pending: int = 0
    mig_max: int = 0
    profiles: tuple[Profile, ...] = ()
    migs: tuple[Mig, ...] = ()
    links: tuple[Link, ...] = ()
    processes: tuple[Process, ...] = ()
    events: int = ALL_EVENTS
    persistence: int = 1
    compute_mode: int = 0
    ecc_capable: bool = True
    ecc_current: int = 1
    ecc_pending: int = 1
    ecc_corrected: int = 0
    ecc_uncorrected: int = 0
    remapped_corrected: int = 0
    remapped_uncorrected: int = 0
    remap_pending: int = 0
    remap_failed: int = 0
    retirement_pending: int = 0
    temperature_c: int = 40
    power_mw: int = 70_000
    busy_percent: int = 0
    memory_busy_percent: int = 0
    numa: int = -1  # what NVML says of a coherent GPU's own memory; the host's view is in numa_node
    fabric: Fabric | None = None
    addressing: int = -1
    recovery_action: int = -1  # what the driver asks for: 1 a reset of the GPU, ...; -1: it does not say

    # What the kernel says of it, in /sys; the library does not.
    numa_node: int | None = 0  # None: no such file
    drm: tuple[int, int] | None = None  # card, render

    @property
    def address(self) -> str:
        """Its PCI address as the kernel writes it."""
        return self.bus_id.lower().removeprefix("0000")


_PARTS = frozenset({"profiles", "migs", "links", "processes", "fabric", "numa_node", "drm"})


def describe(gpu: Gpu) -> Iterator[str]:
    """The script's lines for one GPU."""
    yield "gpu"
    yield from _fields(gpu, _PARTS)
    if gpu.fabric is not None:
        yield from (f"fabric_{line}" for line in _fields(gpu.fabric, frozenset()))
    for link in gpu.links:
        yield f"link {link.number} {int(link.up)} {link.kind} {link.remote}"
    for process in gpu.processes:
        yield f"process {process.pid} {process.memory} {process.gi} {process.ci}"
    for profile in gpu.profiles:
        yield f"profile {profile.constant}"
        yield f"name MIG {profile.named(gpu.memory_total)}"
        yield from _fields(profile, frozenset({"constant", "placements"}))
        yield from (f"placement {start} {size}" for start, size in profile.placements)
    for mig in gpu.migs:
        yield f"mig {mig.index}"
        yield f"name {gpu.name} MIG {mig.profile(gpu.memory_total)}"
        yield from _fields(mig, frozenset({"index"}))


def _fields(value: msgspec.Struct, without: frozenset[str]) -> Iterator[str]:
    for name, content in msgspec.structs.asdict(value).items():
        if name not in without:
            yield f"{name} {int(content) if isinstance(content, bool) else content}"


def _gigabytes(memory_mb: int, total_bytes: int) -> int:
    """NVIDIA's way: the share of the whole in eighths, of the whole in GB."""
    if not total_bytes:
        return 0
    eighths = math.ceil(8 * memory_mb * 2**20 / total_bytes)
    return math.floor(eighths / 8 * math.ceil(total_bytes / 2**30) + 0.5)

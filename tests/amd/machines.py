"""Machines with AMD GPUs as values: which there are, how they are cut and joined. Made of facts about real ones."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

XGMI, PCIE = 11, 2
GIB = 2**30


class Gpu(Struct, frozen=True):
    """One PCI function. Partition 0 is the function itself; the others are platform devices of their own."""

    address: str
    render: int  # of partition 0; the others follow
    numa: str | None = "0"  # as in the file; None: there is no file
    device: str = "0x740f"
    product: str = ""
    compute: str = ""  # as in the file; empty: there is no file
    memory: str = ""
    parts: int = 1
    hive: int = 0  # GPUs of one hive are joined by XGMI; 0: of none
    simds: int = 416  # of one partition
    gfx: int | None = 90010
    domain: bool = True  # whether KFD says the PCI domain
    bank_bytes: tuple[int, ...] = ()  # memory of each partition as KFD says it; none: there are no banks
    vram_bytes: int = 0
    vram_used_bytes: int = 0
    busy: str = "0"  # percent, as in the file; empty: there is no file
    ras: tuple[tuple[str, str], ...] = ()  # block and the content of its counter

    @property
    def slot(self) -> str:
        return self.address[:-2]


class Part(Struct, frozen=True):
    """One partition of a GPU, or the whole of it."""

    gpu: Gpu
    number: int
    node: int  # of KFD
    xcp: str  # name of the platform device; empty for partition 0

    @property
    def render(self) -> int:
        return self.gpu.render + self.number

    @property
    def card(self) -> int:
        return self.render - 127


class Machine(Struct, frozen=True):
    gpus: tuple[Gpu, ...]
    cpus: int = 2
    cores: int = 64
    missing: tuple[str, ...] = ()  # partitions that are not there: ids
    driver: bool = True
    kfd: bool = True

    def parts(self) -> Iterator[Part]:
        node, xcp = self.cpus, 0
        for gpu in self.gpus:
            for number in range(gpu.parts):
                xcp += number > 0
                name = f"amdgpu_xcp_{xcp}" if number else ""
                if (name or gpu.address) in self.missing:
                    continue
                yield Part(gpu, number, node, name)
                node += 1

    def without(self, address: str) -> Machine:
        return replace(self, gpus=tuple(gpu for gpu in self.gpus if gpu.address != address))

    def change(self, address: str, **changes: object) -> Machine:
        return replace(self, gpus=tuple(replace(g, **changes) if g.address == address else g for g in self.gpus))


def mi210() -> Machine:
    """Eight whole GPUs in two quads of XGMI, one on each NUMA node."""
    buses = ("63", "43", "03", "26", "e3", "c3", "83", "a3")
    return Machine(
        tuple(
            Gpu(f"0000:{bus}:00.0", 128 + n, str(n // 4), hive=1 + n // 4, product="AMD Instinct MI210")
            for n, bus in enumerate(buses)
        )
    )


def mi300x(compute: str = "SPX", memory: str = "NPS1", missing: tuple[str, ...] = ()) -> Machine:
    """Eight GPUs that are all joined by XGMI, whole (SPX) or in eight parts each (CPX)."""
    buses, parts = ("05", "27", "47", "65", "85", "a7", "c7", "e5"), {"SPX": 1, "DPX": 2, "QPX": 4, "CPX": 8}[compute]
    return Machine(
        tuple(
            Gpu(
                f"0000:{bus}:00.0",
                128 + 8 * n,
                str(n // 4),
                device="0x74a1",
                product="AMD Instinct MI300X OAM",
                compute=compute,
                memory=memory,
                parts=parts,
                hive=1,
                simds=1216 // parts,
                gfx=90402,
                bank_bytes=(192 * GIB // parts,) * parts,
                vram_bytes=192 * GIB,
            )
            for n, bus in enumerate(buses)
        ),
        cores=96,
        missing=missing,
    )


def mi308() -> Machine:
    """Eight GPUs in four parts each, in two PCI domains."""
    buses = ("0000:0a", "0000:80", "0000:a4", "0000:c8", "0001:0b", "0001:81", "0001:a5", "0001:c9")
    return Machine(
        tuple(
            Gpu(
                f"{bus}:00.0",
                128 + 8 * n,
                str(n // 4),
                device="0x74a2",
                compute="CPX",
                memory="NPS1",
                parts=4,
                hive=1,
                simds=80,
                gfx=90402,
                bank_bytes=(51539607552,) * 3 + (51522830336,),
            )
            for n, bus in enumerate(buses)
        ),
        cores=112,
    )


def vegas() -> Machine:
    """Two GPUs of a kernel that says neither the PCI domain nor the gfx version; nothing joins them."""
    return Machine(
        tuple(
            Gpu(
                f"0000:{bus}:00.0",
                128 + n,
                str(n),
                device="0x6860",
                simds=256,
                gfx=None,
                domain=False,
                bank_bytes=(17163091968,),
            )
            for n, bus in enumerate(("19", "1a"))
        ),
        cpus=1,
        cores=20,
    )


def virtual() -> Machine:
    """A virtual machine that knows no NUMA nodes: one GPU in eight parts."""
    gpu = replace(mi300x("CPX").gpus[0], address="0000:00:08.0", numa="-1")
    return Machine((gpu,), cpus=1, cores=16)


def unlinked(machine: Machine) -> Machine:
    """The same without links between GPUs, for those who do not look: they are most of the files."""
    return replace(machine, gpus=tuple(replace(gpu, gfx=None) for gpu in machine.gpus))


def joined(one: Part, other: Part) -> int | None:
    """The link that KFD shows between two parts; none where it shows none."""
    if one.gpu.gfx is None:
        return None
    same = one.gpu.address == other.gpu.address
    return XGMI if same or (one.gpu.hive and one.gpu.hive == other.gpu.hive) else PCIE

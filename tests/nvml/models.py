"""A catalogue of GPU models, and whole machines made of them.

Numbers are plausible, not measured. Must not know files nor the script.
"""

from __future__ import annotations

import hashlib
import uuid
from typing import Any

import msgspec

from tests.nvml.values import Gpu, Link, Mig, Profile

# constant, id, slices, instances, multiprocessors, copy engines, decoders, jpegs, ofas, memory MB
_Row = tuple[int, int, int, int, int, int, int, int, int, int]
_A100_40: tuple[_Row, ...] = (
    (0, 19, 1, 7, 14, 1, 0, 0, 0, 4864),
    (1, 14, 2, 3, 28, 2, 1, 0, 0, 9856),
    (2, 9, 3, 2, 42, 3, 2, 0, 0, 19968),
    (3, 5, 4, 1, 56, 4, 2, 0, 0, 19968),
    (4, 0, 7, 1, 98, 7, 5, 1, 1, 40192),
    (7, 20, 1, 1, 14, 1, 1, 1, 1, 4864),
    (9, 15, 1, 4, 14, 1, 1, 0, 0, 9856),
)
_H100_80: tuple[_Row, ...] = (
    (0, 19, 1, 7, 16, 1, 1, 1, 0, 9984),
    (1, 14, 2, 3, 32, 2, 2, 2, 0, 20096),
    (2, 9, 3, 2, 60, 3, 3, 3, 0, 40320),
    (3, 5, 4, 1, 64, 4, 4, 4, 0, 40320),
    (4, 0, 7, 1, 132, 8, 7, 7, 1, 80384),
    (7, 20, 1, 1, 16, 1, 1, 1, 1, 9984),
    (9, 15, 1, 4, 26, 1, 1, 1, 0, 20096),
)
# constant → size in memory slices, and where one may start, on a GPU of eight
_PLACES = {0: (1, 7), 1: (2, 6), 2: (4, 8), 3: (4, 4), 4: (8, 8), 7: (1, 7), 9: (2, 8)}

_MODELS: dict[str, dict[str, Any]] = {
    "T4": {"name": "Tesla T4", "memory_total": 16106127360, "cc_major": 7, "cc_minor": 5, "device_id": 0x1EB810DE},
    "V100": {"name": "Tesla V100-SXM2-16GB", "memory_total": 17179869184, "cc_major": 7, "device_id": 0x1DB110DE},
    "L40S": {"name": "NVIDIA L40S", "memory_total": 48305799168, "cc_minor": 9, "device_id": 0x26B910DE},
    "A100": {"name": "NVIDIA A100-SXM4-40GB", "memory_total": 42949672960, "device_id": 0x20B010DE},
    "H100": {"name": "NVIDIA H100 80GB HBM3", "memory_total": 85520809984, "cc_major": 9, "device_id": 0x233010DE},
    "B200": {"name": "NVIDIA B200", "memory_total": 192265846784, "cc_major": 10, "device_id": 0x290110DE},
}
_ARCHITECTURES = {"T4": 6, "V100": 5, "L40S": 8, "A100": 7, "H100": 9, "B200": 10}
_PROFILES = {"A100": _A100_40, "H100": _H100_80}


def gpus(model: str, count: int = 1, **changes: Any) -> tuple[Gpu, ...]:
    """GPUs of one model, half of them on each NUMA node. Their UUIDs are made from model and index: always the same."""
    return tuple(_gpu(model, index, count, changes) for index in range(count))


def linked(those: tuple[Gpu, ...], pairs: dict[tuple[int, int], int]) -> tuple[Gpu, ...]:
    """Joined by NVLinks: how many between which two."""
    links: list[list[Link]] = [list(gpu.links) for gpu in those]
    for (a, b), count in pairs.items():
        for _ in range(count):
            links[a].append(Link(len(links[a]), those[b].bus_id))
            links[b].append(Link(len(links[b]), those[a].bus_id))
    return tuple(msgspec.structs.replace(gpu, links=tuple(own)) for gpu, own in zip(those, links, strict=True))


def partitioned(gpu: Gpu, *profiles: str) -> Gpu:
    """The GPU with MIG on and these instances, as 1g.5gb, wherever they find room."""
    wanted = [_profile_named(gpu, name) for name in profiles]
    places = _arrange(wanted, frozenset())
    if places is None:
        raise ValueError(f"{gpu.name} has no room for {', '.join(profiles)} together")
    each = enumerate(zip(wanted, places, strict=True))
    migs = tuple(_mig(gpu, index, profile, place) for index, (profile, place) in each)
    return msgspec.structs.replace(gpu, mig_current=1, mig_pending=1, migs=migs)


def _profile_named(gpu: Gpu, name: str) -> Profile:
    for profile in gpu.profiles:
        if profile.named(gpu.memory_total) == name:
            return profile
    known = ", ".join(profile.named(gpu.memory_total) for profile in gpu.profiles)
    raise ValueError(f"{gpu.name} has no MIG profile {name}; it has {known or 'none'}")


def _arrange(wanted: list[Profile], taken: frozenset[int]) -> list[tuple[int, int]] | None:
    if not wanted:
        return []
    for start, size in wanted[0].placements:
        slices = frozenset(range(start, start + size))
        if not slices & taken and (rest := _arrange(wanted[1:], taken | slices)) is not None:
            return [(start, size), *rest]
    return None


def made_uuid(*parts: object) -> str:
    return str(uuid.UUID(bytes=hashlib.sha256(repr(parts).encode()).digest()[:16]))


def _gpu(model: str, index: int, count: int, changes: dict[str, Any]) -> Gpu:
    known = _MODELS[model]
    reserved = 512 * 2**20
    facts: dict[str, Any] = {
        "uuid": f"GPU-{made_uuid(model, index)}",
        "bus_id": f"00000000:{0x07 + 4 * index:02X}:00.0",
        "minor": index,
        "serial": f"165002100{index:04d}",
        "memory_reserved": reserved,
        "memory_free": known["memory_total"] - reserved,
        "numa_node": 0 if index < (count + 1) // 2 else 1,
        "profiles": tuple(_profile(row) for row in _PROFILES.get(model, ())),
        "mig_capable": model in _PROFILES,
        "mig_max": 7 if model in _PROFILES else 0,
        "architecture": _ARCHITECTURES[model],
    }
    return Gpu(**(facts | known | changes))


def _profile(row: _Row) -> Profile:
    constant, number, slices, instances, multiprocessors, copy, decoders, jpegs, ofas, memory_mb = row
    size, end = _PLACES[constant]
    return Profile(
        constant=constant,
        id=number,
        slices=slices,
        instances=instances,
        multiprocessors=multiprocessors,
        copy_engines=copy,
        decoders=decoders,
        jpegs=jpegs,
        ofas=ofas,
        memory_mb=memory_mb,
        placements=tuple((start, size) for start in range(0, end - size + 1, size)),
    )


_CI_PROFILES = {1: 0, 2: 1, 3: 2, 4: 3, 7: 4, 8: 5, 6: 6}


def _mig(gpu: Gpu, index: int, profile: Profile, place: tuple[int, int]) -> Mig:
    return Mig(
        index=index,
        uuid=f"MIG-{made_uuid(gpu.uuid, index, profile.constant)}",
        gi=index + 1,
        gi_profile=profile.constant,
        ci_profile=_CI_PROFILES[profile.slices],
        gi_slices=profile.slices,
        ci_slices=profile.slices,
        multiprocessors=profile.multiprocessors,
        copy_engines=profile.copy_engines,
        decoders=profile.decoders,
        encoders=profile.encoders,
        jpegs=profile.jpegs,
        ofas=profile.ofas,
        memory_mb=profile.memory_mb,
        gi_start=place[0],
        gi_size=place[1],
        ci_size=profile.slices,
    )

"""AMD's node labels: from what is known of the GPUs to names and values, and which labels of a node are such. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping

from msgspec import Struct, field

PREFIX, BETA = "amd.com/gpu.", "beta.amd.com/gpu."
NAME_MAX = VALUE_MAX = 63  # of the part of a name behind the domain, and of a value
_MIB, _MIB_PER_GIB = 2**20, 1024
FIRMWARE, PARTITION = "firmware", "compute-memory-partition"
_AS_AMD = str.maketrans({" ": "_", "(": None, ")": None})


class Gpu(Struct, frozen=True):
    """What sysfs says of one GPU or partition. Empty and 0: it does not say."""

    device_id: str = ""
    product: str = ""
    family: str = ""
    vram_bytes: int = 0
    simds: int = 0
    simds_per_cu: int = 0
    partition: str = ""  # spx_nps1
    firmware: Mapping[str, int] = field(default_factory=dict)  # versions by block
    features: Mapping[str, int] = field(default_factory=dict)


class Facts(Struct, frozen=True):
    gpus: tuple[Gpu, ...] = ()
    driver_version: str = ""
    driver_src_version: str = ""
    compute_partitioning: bool = False
    memory_partitioning: bool = False


# One value per GPU: how many GPUs have which.
_COUNTED: Mapping[str, Callable[[Gpu], str]] = {
    "family": lambda gpu: gpu.family,
    "device-id": lambda gpu: gpu.device_id,
    "product-name": lambda gpu: gpu.product.strip().translate(_AS_AMD),
    "vram": lambda gpu: f"{_round_gib(gpu.vram_bytes)}G" if gpu.vram_bytes else "",
    "simd-count": lambda gpu: str(gpu.simds or ""),
    "cu-count": lambda gpu: str((gpu.simds_per_cu and gpu.simds // gpu.simds_per_cu) or ""),
}
# One value for the node.
_PLAIN: Mapping[str, Callable[[Facts], str]] = {
    "driver-version": lambda facts: facts.driver_version,
    "driver-src-version": lambda facts: facts.driver_src_version,
    PARTITION: lambda facts: _only({gpu.partition for gpu in facts.gpus if gpu.partition}),
    "compute-partitioning-supported": lambda facts: _yes(facts.compute_partitioning),
    "memory-partitioning-supported": lambda facts: _yes(facts.memory_partitioning),
}
KINDS = (FIRMWARE, *_COUNTED, *_PLAIN)


def make_labels(facts: Facts, kinds: Collection[str]) -> tuple[dict[str, str], list[str]]:
    """The labels of these kinds, and a note for each value that was changed or left out."""
    labels: dict[str, str] = {}
    notes: list[str] = []
    for kind in kinds:
        made = _make(kind, facts, notes)
        if not made and facts.gpus and kind != PARTITION:
            notes.append(f"-{kind}: sysfs has no value for it, so the label is not written")
        labels |= made
    return dict(sorted(labels.items())), list(dict.fromkeys(notes))


def _make(kind: str, facts: Facts, notes: list[str]) -> dict[str, str]:
    if kind in _PLAIN:
        return _value(kind, _PLAIN[kind](facts), notes, PREFIX)
    if kind == FIRMWARE:
        versions = [part for gpu in facts.gpus for part in (("feat", gpu.features), ("fw", gpu.firmware))]
        found = Counter(f"{block}.{what}.{number}" for what, part in versions for block, number in part.items())
        return _counters(BETA, kind, found, notes)
    found = Counter(value for gpu in facts.gpus if (value := _COUNTED[kind](gpu)))
    made = _counters(BETA, kind, found, notes)
    if len(found) == 1:
        return made | _value(kind, next(iter(found)), notes, PREFIX, BETA)
    return made | _counters(PREFIX, kind, found, notes)


def is_ours(name: str, value: str) -> bool:
    """Whether AMD's labeller, or this one, has written a label of a node."""
    for prefix in (PREFIX, BETA):
        if name.startswith(prefix):
            rest = name.removeprefix(prefix)
            return rest in KINDS or (value.isdecimal() and any(rest.startswith(f"{kind}.") for kind in KINDS))
    return False


def _value(kind: str, value: str, notes: list[str], *prefixes: str) -> dict[str, str]:
    fitted = _fit(value, VALUE_MAX)
    if value != fitted:
        notes.append(_odd(kind, value, fitted))
    return {prefix + kind: fitted for prefix in prefixes if fitted}


def _counters(prefix: str, kind: str, found: Mapping[str, int], notes: list[str]) -> dict[str, str]:
    """Two values that are shortened to the same name count together."""
    most = NAME_MAX - len(f"gpu.{kind}.")
    counts: Counter[str] = Counter()
    for value, count in found.items():
        fitted = _fit(value, most)
        if value != fitted:
            notes.append(_odd(kind, value, fitted))
        if fitted:
            counts[f"{prefix}{kind}.{fitted}"] += count
    return {name: str(count) for name, count in counts.items()}


def _fit(value: str, most: int) -> str:
    """As Kubernetes takes it: letters, digits and -_. only, a letter or digit at both ends."""
    return re.sub(r"[^A-Za-z0-9_.-]", "", value).strip("-_.")[:most].strip("-_.")


def _odd(kind: str, value: str, fitted: str) -> str:
    what = f"is written as {fitted!r}" if fitted else "is not written"
    return f"-{kind}: {value!r:.120} is not valid in a label and {what}"


def _round_gib(size_bytes: int) -> int:
    """From whole MiB, and halves up."""
    return (size_bytes // _MIB + _MIB_PER_GIB // 2) // _MIB_PER_GIB


def _only(values: Collection[str]) -> str:
    return next(iter(values)) if len(values) == 1 else ""


def _yes(fact: bool) -> str:
    return "true" if fact else "false"

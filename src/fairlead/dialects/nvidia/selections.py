"""Which devices NVIDIA's config file offers under which name, and how it shares them. Pure.

For all that read the file: the plugin makes rules of selections, gpu-feature-discovery makes labels of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from fairlead.dialects.nvidia.v1 import PREFIX, SUFFIX, V1, Named, Shared, Sharing

GPU = f"{PREFIX}gpu"
MIG = f"{PREFIX}mig-"
MIG_TEMPLATE = MIG + "{profile}"
GPUS_MAX = 256  # the driver numbers no more: a larger count means all


class Selection(Struct, frozen=True):
    """Some devices, by what a rule of ours matches, and their name. First match wins."""

    name: str  # before it is shared; it may hold {profile}
    selector: Mapping[str, Any] = {}
    shared: Shared | None = None
    partitions: bool = False  # MIG instances

    @property
    def resource(self) -> str:
        """What pods ask for."""
        return self.shared.rename or self.shared.name if self.shared is not None else self.name

    @property
    def replicas(self) -> int:
        return self.shared.replicas if self.shared is not None else 1


def in_force(file: V1, *, lenient: bool) -> tuple[V1, list[str]]:
    """What counts of the file, and notes on names and devices: NVIDIA's programs read and drop them."""
    end = (
        "is not in force, as in NVIDIA's plugin"
        if lenient
        else "is in force; NVIDIA's plugin drops it, and so does --lenient"
    )
    notes = [f"{key}: unknown key, which is ignored, as in NVIDIA's plugin" for key in file.ignored]
    notes += [f"resources in the config file {end}"] if file.gpus or file.mig else []
    _, sharing = file.sharing
    if sharing is not None:
        notes += [f"{one.at}: {key} {end}" for one in sharing.resources for key in _dropped(one, sharing)]
    if not lenient:
        return file, notes
    return replace(file, gpus=(), mig=(), mps=_plain(file.mps), time_slicing=_plain(file.time_slicing)), notes


def _dropped(one: Shared, block: Sharing) -> Iterator[str]:
    if one.rename != _usual(one, block):
        yield "rename"
    if one.devices != "all":
        yield "devices"


def _usual(one: Shared, block: Sharing) -> str:
    return one.name + SUFFIX if block.rename_by_default else ""


def _plain(block: Sharing | None) -> Sharing | None:
    """Of a resource that is shared twice, the line with more replicas counts."""
    if block is None:
        return None
    kept: dict[str, Shared] = {}
    for one in sorted(block.resources, key=lambda one: one.replicas):
        kept[one.name] = Shared(one.name, one.replicas, _usual(one, block), "all", one.at)
    return replace(block, resources=tuple(kept.values()))


def list_selections(
    file: V1, mig_strategy: str, problems: list[str], notes: list[str], *, lenient: bool
) -> Iterator[Selection]:
    """Of a file as it is in force. `problems` gets what cannot be, `notes` what has no effect."""
    kind, sharing = file.sharing
    shared = list(sharing.resources) if sharing is not None else []
    used: set[str] = set()
    for plain in _names(file, mig_strategy):
        by_profile = plain.name == MIG_TEMPLATE
        mine = [one for one in shared if (one.name.startswith(MIG) if by_profile else one.name == plain.name)]
        used |= {one.name for one in mine}
        yield from _shared(mine, plain, kind, problems)
        if by_profile or not any(one.devices == "all" for one in mine):
            yield plain
    for one in shared:
        if one.name not in used:
            text = f"{one.at}: no GPU is offered as {one.name} with --mig-strategy={mig_strategy}"
            # One file may serve nodes with and without MIG.
            if not lenient and not one.name.startswith(MIG):
                problems.append(f"{text}. Correct the name")
            else:
                notes.append(f"{text}: it has no effect")


def _names(file: V1, mig_strategy: str) -> Iterator[Selection]:
    """Which devices have which name, before anything is shared."""
    single = mig_strategy == "single"
    if mig_strategy != "none":
        for entry in file.mig:
            yield Selection(entry.name, {"attributes": {"mig": _glob(entry.pattern)}}, partitions=True)
    if mig_strategy == "mixed":
        yield Selection(MIG_TEMPLATE, {"attributes": {"profile": "*"}}, partitions=True)
    for entry in _until_all(file.gpus):
        yield Selection(entry.name, {"model": _glob(entry.pattern)}, partitions=single)
    rest = next((entry.name for entry in file.gpus if entry.pattern == "*"), GPU)
    yield Selection(rest, partitions=single)


def _until_all(entries: Sequence[Named]) -> Iterator[Named]:
    for entry in entries:
        if entry.pattern == "*":
            return
        yield entry


def _shared(entries: list[Shared], plain: Selection, kind: str, problems: list[str]) -> Iterator[Selection]:
    """A selection for each line of the sharing block; several where a line lists indexes and ids."""
    whole: dict[str, Shared] = {}
    problems += [
        f"{one.at}: {one.name} is shared by {before.at} already. Remove one of them"
        for one in entries
        if one.devices == "all" and (before := whole.setdefault(one.name, one)) is not one
    ]
    # Lines for some devices go before those for all.
    for one in sorted(entries, key=lambda entry: entry.devices == "all"):
        base = plain.selector
        if plain.name == MIG_TEMPLATE:
            base = {"attributes": {"profile": one.name.removeprefix(MIG)}}
        if kind == "mps" and isinstance(one.devices, int) and base:
            problems.append(f"{one.at}: a count does not tell MPS which GPUs of {one.name} are meant. List them")
        for part in _selections(one, count_by_index=kind == "mps"):
            yield Selection(one.name, {**base, **part}, one, plain.partitions)


def _selections(one: Shared, *, count_by_index: bool) -> Iterator[dict[str, Any]]:
    """`count_by_index`: a count is spelled out, for those who must know which GPUs are meant."""
    if one.devices == "all":
        yield {}
    elif isinstance(one.devices, int):
        indexes = [str(number) for number in range(min(one.devices, GPUS_MAX))]
        yield {"index": indexes} if count_by_index else {"first": one.devices}
    else:
        indexes = [text for text in one.devices if text[0].isdigit()]
        ids = [text for text in one.devices if not text[0].isdigit()]
        if indexes:
            yield {"index": indexes}
        if ids:
            yield {"id": ids}


def _glob(pattern: str) -> str:
    """Theirs know only the star."""
    return pattern.replace("[", "[[]").replace("?", "[?]")

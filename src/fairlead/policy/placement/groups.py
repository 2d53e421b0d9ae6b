"""All groups of devices, up to symmetry: devices that are interchangeable are counted, not named.

So a node of sixteen equal devices has seventeen groups instead of 65,536. Without symmetry there are 2^n, which is why
callers bound n. Knows nothing of what a good group is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from msgspec import Struct

Matrix: TypeAlias = Sequence[Sequence[int]]  # symmetric, not negative, 0 on the diagonal


class EquivalenceClass(Struct, frozen=True):
    """Devices that are interchangeable; or a block: the devices that must be included, which count as one."""

    members: tuple[int, ...]  # ascending
    block: bool = False

    @property
    def count(self) -> int:
        return 1 if self.block else len(self.members)

    @property
    def unit(self) -> int:
        """Devices per count."""
        return len(self.members) if self.block else 1

    def first(self, count: int) -> tuple[int, ...]:
        return self.members[: count * self.unit]


def find_classes(weights: Matrix, numa: Sequence[Sequence[int]], must: Sequence[int]) -> list[EquivalenceClass]:
    """Puts devices together that have the same weight to every third one and the same NUMA nodes. A block comes first.

    Likeness carries over: if i is like j and j is like k, the three are joined by one and the same weight.
    """
    forced = set(must)
    classes: list[list[int]] = []
    similar: dict[object, list[list[int]]] = {}
    for i, row in enumerate(weights):
        if i in forced:
            continue
        alike = similar.setdefault((tuple(sorted(row)), tuple(numa[i])), [])
        for members in alike:
            j = members[0]
            other = weights[j]
            if all(row[k] == other[k] for k in range(len(row)) if k not in {i, j}):
                members.append(i)
                break
        else:
            alike.append([i])
            classes.append(alike[-1])
    found = [EquivalenceClass(tuple(members)) for members in classes]
    return [EquivalenceClass(tuple(sorted(forced)), block=True), *found] if forced else found


class GroupsOfSize(Struct, frozen=True):
    """All groups of one size, in parallel lists."""

    codes: list[int]
    inside: list[int]  # links inside the group
    degrees: list[int]  # links of its devices to any device


class Groups:
    """Every group up to a size, as a code: one bit field per class, with a guard bit above it.

    The guards turn "is contained in" into one subtraction. Groups are built size by size, class after class, each from
    a smaller one; what is linear (the code, the degree, the links to each class) travels in one packed number.
    """

    def __init__(self, weights: Matrix, classes: Sequence[EquivalenceClass], limit: int) -> None:
        self.classes, self.limit = classes, limit
        self.devices = len(weights)
        self.counts = [each.count for each in classes]
        self.shifts: list[int] = []
        self.fields: list[int] = []
        self.guards = self.whole = 0
        shift = 0
        for count in self.counts:
            width = count.bit_length()
            self.shifts.append(shift)
            self.fields.append(((1 << width) - 1) << shift)
            self.guards |= 1 << (shift + width)
            self.whole |= count << shift
            shift += width + 1
        self.must_field = self.fields[0] if classes[0].block else 0  # of the devices that must be included
        self._sizes = self._build(weights, shift)

    def of_size(self, size: int) -> GroupsOfSize:
        inside, packed = self._sizes[size]
        code_bits = self.guards.bit_length()
        code_mask, degree_mask = (1 << code_bits) - 1, (1 << self._pull_bits) - 1
        return GroupsOfSize(
            codes=[value & code_mask for value in packed],
            inside=inside,
            degrees=[value >> code_bits & degree_mask for value in packed],
        )

    def sums(self, values: Sequence[int], size: int) -> list[int]:
        """For each group of a size, the sum of one value per count of each class."""
        sizes: list[list[int]] = [[0], *([] for _ in range(size))]
        for each, count, value in zip(self.classes, self.counts, values, strict=True):
            for target in range(size, each.unit - 1, -1):
                for times in range(1, min(count, target // each.unit) + 1):
                    step = value * times
                    sizes[target] += [total + step for total in sizes[target - times * each.unit]]
        return sizes[size]

    def members(self, code: int) -> tuple[int, ...]:
        """The devices of a group, ascending: of each class the lowest."""
        chosen: list[int] = []
        for each, field, shift in zip(self.classes, self.fields, self.shifts, strict=True):
            if code & field:
                chosen += each.first((code & field) >> shift)
        return tuple(sorted(chosen))

    def _build(self, weights: Matrix, code_bits: int) -> list[tuple[list[int], list[int]]]:
        """By size: the links inside, and the packed sums. Each group is built from a smaller one."""
        ones = [each.first(1) for each in self.classes]
        degrees = [sum(sum(weights[i]) for i in one) for one in ones]
        self._pull_bits = bits = (2 * sum(map(sum, weights)) + 1).bit_length()
        mask = (1 << bits) - 1
        sizes: list[tuple[list[int], list[int]]] = [([0], [0]), *(([], []) for _ in range(self.limit))]
        for number, each in enumerate(self.classes):
            unit = 1 << self.shifts[number] | degrees[number] << code_bits
            start = code_bits + bits
            for later in range(number + 1, len(self.classes)):
                links = sum(weights[i][j] for i in ones[number] for j in ones[later])
                unit |= links << (start + later * bits)
            pull = start + number * bits
            own = _links(weights, ones[number])
            between = weights[each.members[0]][each.members[1]] if each.count > 1 else 0
            for target in range(self.limit, each.unit - 1, -1):
                inside, packed = sizes[target]
                for times in range(1, min(each.count, target // each.unit) + 1):
                    smaller_inside, smaller_packed = sizes[target - times * each.unit]
                    fixed = own + between * (times * (times - 1) // 2)
                    inside += [
                        links + times * (sums >> pull & mask) + fixed
                        for links, sums in zip(smaller_inside, smaller_packed, strict=True)
                    ]
                    step = unit * times
                    packed += [sums + step for sums in smaller_packed]
        return sizes


def _links(weights: Matrix, members: Sequence[int]) -> int:
    return sum(weights[i][j] for i in members for j in members if i < j)

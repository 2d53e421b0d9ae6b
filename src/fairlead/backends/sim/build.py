"""Makes devices and links of a fleet's groups. Pure: the same fleet gives the same ids on every machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from zlib import crc32

from msgspec import Struct

from fairlead.backends.sim.links import parts_score, score_pairs
from fairlead.backends.sim.spec import Group, LinkSpec, Node, Partition
from fairlead.kit.pattern import fill
from fairlead.model.device import Device, DeviceNode
from fairlead.model.errors import ConfigError, InvalidName
from fairlead.model.names import DeviceId, parse_slot_id

LinkScores = dict[tuple[DeviceId, DeviceId], int]


class Built(Struct, frozen=True):
    """What a fleet is made of. `wholes` are devices that are offered in parts only."""

    devices: tuple[Device, ...] = ()
    wholes: tuple[Device, ...] = ()
    scores: Mapping[tuple[DeviceId, DeviceId], int] | None = None


DEVICES_MAX = 16_384  # of one fleet; a kubelet takes no longer list


def build(groups: Sequence[Group], fleet: str, source: str, *, first: int = 0, at: str = "devices") -> Built:
    """Builds all groups. `first` is the number of the first device: new ones join behind those that are there."""
    made = sum(group.count * (1 + sum(part.count for part in group.partitions)) for group in groups)
    if made > DEVICES_MAX:
        raise ConfigError(source, [f"{at}: {made:,} devices with their partitions; {DEVICES_MAX:,} is the limit"])
    devices: list[Device] = []
    wholes: list[Device] = []
    scores: LinkScores = {}
    number = first
    for position, group in enumerate(groups):
        try:
            members = [_device(group, fleet, number + i, i) for i in range(group.count)]
            parts = [_parts(group, member, fleet, i) for i, member in enumerate(members)]
            scores |= _links(group, members, parts)
        except (ValueError, InvalidName) as error:
            raise ConfigError(source, [f"{at}[{position}].{error}"]) from None
        number += group.count
        if group.partitions:
            wholes += members
            devices += (part for family in parts for part in family)
        else:
            devices += members
    _refuse_twins([*devices, *wholes], source, at)
    return Built(tuple(devices), tuple(wholes), scores)


def _device(group: Group, fleet: str, number: int, i: int) -> Device:
    names: dict[str, str | int] = {"uuid": _uuid(f"{fleet}/{number}"), "n": number, "i": i, "fleet": fleet}
    names["pci"] = pci = _pci(group, names, i)
    numa = _numa(group, i)
    return Device(
        id=_id(fill(group.id, names, "id")),
        index=fill(group.index, names, "index"),
        vendor=group.vendor,
        model=group.model,
        memory_bytes=int(group.memory),
        pci_address=pci,
        numa_nodes=() if numa is None else (numa,),
        nodes=_nodes(group.nodes, names, "nodes"),
        attributes=dict(group.attributes),
    )


def _parts(group: Group, whole: Device, fleet: str, member: int) -> list[Device]:
    parts: list[Device] = []
    for spec in group.partitions:
        first, before = len(parts), member * spec.count
        parts += [_part(spec, whole, fleet, first + i, before + i) for i in range(spec.count)]
    return parts


def _part(spec: Partition, whole: Device, fleet: str, i: int, k: int) -> Device:
    index = f"{whole.index}:{i}"
    uuid = _uuid(f"{fleet}/{whole.id}/{i}")
    names: dict[str, str | int] = {"uuid": uuid, "i": i, "n": index, "fleet": fleet, "parent": whole.id, "k": k}
    names["pci"] = whole.pci_address
    return Device(
        id=_id(fill(spec.id, names, "partitions.id")),
        index=index,
        vendor=whole.vendor,
        model=f"{whole.model} {spec.profile}".strip(),
        memory_bytes=int(spec.memory),
        pci_address=whole.pci_address,
        numa_nodes=whole.numa_nodes,
        nodes=whole.nodes + _nodes(spec.nodes, names, "partitions.nodes"),
        parent=whole.id,
        attributes={**whole.attributes, "profile": spec.profile},
    )


def _links(group: Group, members: list[Device], parts: list[list[Device]]) -> LinkScores:
    spec = LinkSpec(scheme=group.links) if isinstance(group.links, str) else group.links
    numa = [member.numa_nodes[0] if member.numa_nodes else None for member in members]
    try:
        scores = score_pairs(spec, numa)
    except ValueError as error:
        raise ValueError(f"links: {error}") from None
    if not group.partitions:
        return {(members[one].id, members[other].id): score for (one, other), score in scores.items()}
    # A part is joined as its whole is; parts of one whole sit on one board.
    joined = {(a.id, b.id): score for (one, other), score in scores.items() for a in parts[one] for b in parts[other]}
    for family in parts:
        joined |= {(a.id, b.id): parts_score(spec.scheme) for a in family for b in family if a.id < b.id}
    return joined


def _pci(group: Group, names: Mapping[str, str | int], i: int) -> str:
    if isinstance(group.pci, str):
        return fill(group.pci, names, "pci")
    if len(group.pci) != group.count:
        raise ValueError(f"pci: {len(group.pci)} addresses for {group.count} devices; give one each, or a pattern")
    return group.pci[i]


def _numa(group: Group, i: int) -> int | None:
    nodes = (group.numa,) if isinstance(group.numa, int) else group.numa
    if not nodes:
        return None
    if min(nodes) < 0:
        raise ValueError(f"numa: {min(nodes)} is not a node; leave numa out where there is none")
    if group.count % len(nodes):
        raise ValueError(f"numa: {len(nodes)} nodes do not divide {group.count} devices; give one for each device")
    return nodes[i * len(nodes) // group.count]


def _nodes(specs: Iterable[str | Node], names: Mapping[str, str | int], key: str) -> tuple[DeviceNode, ...]:
    nodes = []
    for spec in specs:
        node = Node(path=spec) if isinstance(spec, str) else spec
        if not node.path.startswith("/"):
            raise ValueError(f"{key}: {node.path!r} is not an absolute path")
        inside = fill(node.container, names, key)
        nodes.append(DeviceNode(fill(node.path, names, key), inside, node.permissions))
    return tuple(nodes)


def _id(text: str) -> DeviceId:
    # A whole device is one slot with the device's own id, so the slot's rules hold.
    return DeviceId(parse_slot_id(text))


def _uuid(seed: str) -> str:
    """Shaped as a UUID, and the same for the same seed."""
    # Four checksums make a fine made-up number, and hashlib would load OpenSSL for it.
    text = "".join(f"{crc32(f'{part}/{seed}'.encode()):08x}" for part in range(4))
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def _refuse_twins(devices: Sequence[Device], source: str, at: str) -> None:
    twins = [name for name, times in Counter(device.id for device in devices).items() if times > 1]
    if twins:
        raise ConfigError(source, [f"{at}: several devices have the id {twins[0]!r}; use {{n}} or {{uuid}} in the id"])

"""One device that two backends found: as the same id, or as two devices with the same node. Which, and the cure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable
from itertools import combinations

from fairlead.engine.source import Source
from fairlead.model.errors import some
from fairlead.model.names import DeviceId


def overlaps(sources: Iterable[Source], offered: Container[DeviceId] = ()) -> list[str]:
    """`offered`: the devices that rules offer. Only two of these can be given to two pods."""
    known = [(source.name, _ids(source), _own_nodes(source, offered)) for source in sources]
    problems = []
    for (one, ids, nodes), (other, more_ids, more_nodes) in combinations(known, 2):
        if same := sorted(ids & more_ids):
            problems.append(
                f"backends {one} and {other} both found {some(same)}; one of each is left out. "
                "Let one of them look for fewer devices, or give them other ids"
            )
        shared = [path for path in sorted(nodes.keys() & more_nodes.keys()) if nodes[path] != more_nodes[path]]
        if shared:
            pairs = some([f"{nodes[path]} and {more_nodes[path]} ({path})" for path in shared])
            problems.append(
                f"backends {one} and {other} found the same device under two ids: {pairs}. Two pods may get it: "
                "exclude one of each by a rule"
            )
    return problems


def _ids(source: Source) -> set[DeviceId]:
    return {device.id for device in source.findings.devices}


def _own_nodes(source: Source, offered: Container[DeviceId]) -> dict[str, DeviceId]:
    """The nodes that no other device of the same backend has, and whose they are. Control nodes are all devices'."""
    devices = source.findings.devices
    counts = Counter(node.path for device in devices for node in device.nodes)
    return {
        node.path: device.id
        for device in devices
        if device.id in offered
        for node in device.nodes
        if counts[node.path] == 1
    }

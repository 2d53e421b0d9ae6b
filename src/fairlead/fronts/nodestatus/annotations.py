"""Annotations of the node that say what its devices are, by server-side apply: those that no device gives now go."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping

from fairlead.cluster.client import AnyObject
from fairlead.cluster.cluster import Cluster
from fairlead.cluster.kinds import NODES
from fairlead.cluster.patches import ApplyPatch
from fairlead.fronts.nodestatus.parts import Note, make_loop
from fairlead.model.inventory import Inventory
from fairlead.model.ports import Record

FIELD = re.compile(r"\{([A-Za-z][A-Za-z0-9_-]*)(?:\.([0-9]))?\}")


def render(templates: Mapping[str, str], inventory: Inventory) -> dict[str, str]:
    """`{name}` is an attribute of the first device that has it, `{name.0}` its first part before a dot.

    An annotation with a field that no device has is left out.
    """
    known: dict[str, str] = {}
    for device in inventory.devices:
        known = {**device.attributes, **known}

    def value(found: re.Match[str]) -> str:
        whole, part = known.get(found[1], ""), found[2]
        return whole if part is None else "".join(whole.split(".")[int(part) : int(part) + 1])

    return {
        key: FIELD.sub(value, template)
        for key, template in templates.items()
        if all(value(found) for found in FIELD.finditer(template))
    }


class NodeAnnotations:
    """Run it as a task; tell it of every inventory."""

    def __init__(
        self, cluster: Cluster, templates: Mapping[str, str], manager: str, record: Record, note: Note
    ) -> None:
        self._cluster, self._templates, self._manager, self._record = cluster, templates, manager, record
        self._wanted: dict[str, str] = {}
        self._due = asyncio.Event()
        self._loop = make_loop("annotations", self._apply, cluster, record, note, self._due)

    def tell(self, inventory: Inventory) -> None:
        wanted = render(self._templates, inventory)
        if wanted and wanted != self._wanted:  # no device at the moment: what was written stays
            self._wanted = wanted
            self._due.set()

    async def run(self) -> None:
        await self._loop.run()

    async def _apply(self) -> None:
        node, wanted = await self._cluster.name(), self._wanted
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node, "annotations": wanted}}
        await self._cluster.client.patch(NODES, node, ApplyPatch(body, self._manager), AnyObject)
        self._record("node-annotated", node=node, annotations=sorted(wanted))

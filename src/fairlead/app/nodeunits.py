"""Node units: an annotation of the node says how large its units of memory are, for whoever counts them from afar."""

from __future__ import annotations

from collections.abc import Iterable

from fairlead.app.annotation import NodeAnnotation
from fairlead.model.resource import Resource
from fairlead.policy.unitmark import write_units


class NodeUnits(NodeAnnotation):
    """Run it as a task; tell it of every change. Needs no permission that amounts do not need."""

    topic = "node-units"
    untold = "how large a unit of memory is"
    through = "status"

    def tell(self, resources: Iterable[Resource]) -> None:
        self.want(write_units(resources))

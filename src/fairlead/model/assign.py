"""Assignment: what a scheduler writes on a pod about the devices it has chosen, and what we write back."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

NOW_NS = "{nowNs}"  # in a mark: the time, in nanoseconds


class NodeEnv(Struct, frozen=True):
    """Environment of every grant, while a label of the node has this value."""

    label: str
    value: str
    env: Mapping[str, str]


class Assign(Struct, frozen=True):
    """How to read and to annotate the pods of one resource. Every key is an annotation of the pod."""

    device: str  # names the device, or several with commas between them
    by_id: bool = False  # by its id; else by its index
    per_container: str = ""  # JSON: {number of the container: {index of the device: units}}
    time: str = ""  # when the device was chosen; a smaller number is older
    time_required: bool = False
    assigned: str = ""  # says that the pod has its devices
    unassigned: frozenset[str] = frozenset({"false"})  # values of it that mean "not yet"; "": it is not there
    after_bind: bool = True  # whether these may still be written when the pod is bound to its node
    actual: str = ""  # ours: what a pod has if it was assigned something else; then no assignment is ever rewritten
    needs: tuple[str, ...] = ()  # must be there, and not empty, before a container starts
    wait_s: float = 5.0
    marks: Mapping[str, str] = {}
    only_device: bool = False
    strict: bool = False
    node_lock: str = ""  # annotation of the node that is removed after each admission
    node_env: tuple[NodeEnv, ...] = ()

    @property
    def keys(self) -> frozenset[str]:
        """The annotations that are read."""
        named = {self.device, self.per_container, self.time, self.assigned, self.actual}
        return frozenset({*named, *self.needs, *self.marks} - {""})

"""What must hold, read from the API server alone: no device has more than it can give, and pods are where they say.

Reckons by itself, and shares no code with the extender. A ledger follows the watch of pods, so every state that the
API server had is judged, and not only the last one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fairlead.cluster.errors import ClusterError

Object = dict[str, Any]


@dataclass(frozen=True)
class Sharing:
    """A system under which pods share devices: what they ask for, and where it is written which device they have."""

    resource: str
    count: str
    index: str
    devices: int = 8  # of each node; all nodes are alike
    units: int = 80  # of each device
    by_id: bool = False  # devices are named by an id of their own

    def name_of(self, node: str, number: int) -> str:
        """How annotations name a device."""
        return f"GPU-{node}-{number}" if self.by_id else str(number)

    @property
    def offer(self) -> dict[str, int]:
        return {self.resource: self.devices * self.units, self.count: self.devices}

    def asked_of(self, pod: Mapping[str, Any]) -> int:
        containers = pod["spec"]["containers"]
        return sum(int((one["resources"].get("limits") or {}).get(self.resource, 0)) for one in containers)


GPUSHARE = Sharing("aliyun.com/gpu-mem", "aliyun.com/gpu-count", "ALIYUN_COM_GPU_MEM_IDX")
NATIVE = Sharing("example.com/gpu-memory", "example.com/gpu-count", "scheduler.fairlead/device")
DOSLAB = Sharing("doslab.io/gpu-memory", "doslab.io/gpu-count", "doslab.io/gpu-uuid", by_id=True)
ENDED = ("Succeeded", "Failed")
Place = tuple[str, str, str]  # resource, node, index


class Ledger:
    """The store of a reflector of pods. `faults` keeps all that was ever wrong."""

    def __init__(self, *sharings: Sharing) -> None:
        self.sharings = sharings
        self.faults: list[str] = []
        self.pods: dict[str, Object] = {}  # by uid: all that the server has
        self.used: dict[Place, int] = defaultdict(int)
        self._held: dict[str, list[tuple[Place, int]]] = {}
        self.ended: set[str] = set()  # names, also of those that are gone

    # --- As a store -------------------------------------------------------------------------------------------------

    def replace(self, items: tuple[Object, ...], version: str, began_s: float) -> bool:
        del version, began_s
        self.pods, self._held = {}, {}
        self.used.clear()
        for pod in items:
            self._take(pod)
        self._judge(self.used)
        return True

    def put(self, item: Object) -> None:
        self._give_back(item)
        self._judge(place for place, _ in self._take(item))

    def drop(self, item: Object) -> None:
        self._give_back(item)

    def heard(self) -> None:
        """Nothing to note."""

    def lost(self, error: ClusterError) -> None:
        """A list follows."""

    # --- Accounts ---------------------------------------------------------------------------------------------------

    def _take(self, pod: Object) -> list[tuple[Place, int]]:
        uid = pod["metadata"]["uid"]
        self.pods[uid] = pod
        if pod["status"].get("phase") in ENDED:
            self.ended.add(pod["metadata"]["name"])
            return []
        held = self._held[uid] = [entry for one in self.sharings for entry in self._of(pod, one)]
        for place, units in held:
            self.used[place] += units
        return held

    def _give_back(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        self.pods.pop(uid, None)
        for place, units in self._held.pop(uid, ()):
            self.used[place] -= units

    def _of(self, pod: Object, sharing: Sharing) -> Iterator[tuple[Place, int]]:
        name, node = pod["metadata"]["name"], pod["spec"].get("nodeName")
        index = (pod["metadata"].get("annotations") or {}).get(sharing.index)
        asked = sharing.asked_of(pod)
        if bool(node and asked) != (index is not None):
            self.faults.append(f"{name} asks for {asked}, is on node {node} and has index {index}")
        if not (node and asked and index):
            return
        indexes = index.split(",")
        for one in indexes:
            if one not in {sharing.name_of(node, number) for number in range(sharing.devices)}:
                self.faults.append(f"{name} has index {index}")
            yield (sharing.resource, node, one), asked // len(indexes)

    def _judge(self, places: Iterable[Place]) -> None:
        most = {one.resource: one.units for one in self.sharings}
        self.faults += [f"{one} has {self.used[one]}" for one in places if self.used[one] > most[one[0]]]

    # --- Questions --------------------------------------------------------------------------------------------------

    def named(self, prefix: str = "") -> list[Object]:
        return [pod for pod in self.pods.values() if pod["metadata"]["name"].startswith(prefix)]

    def bound(self, prefix: str = "") -> int:
        return sum(bool(pod["spec"].get("nodeName")) for pod in self.named(prefix))

    def running(self, prefix: str = "") -> int:
        return sum(pod["status"].get("phase") == "Running" for pod in self.named(prefix))

    def pending(self, prefix: str = "") -> list[Object]:
        return [pod for pod in self.named(prefix) if not pod["spec"].get("nodeName")]

    def nodes_used(self) -> set[str]:
        return {pod["spec"]["nodeName"] for pod in self.pods.values() if pod["spec"].get("nodeName")}

    def free(self, sharing: Sharing, nodes: Iterable[str]) -> int:
        """The most that one device still gives."""
        places = ((sharing.resource, node, sharing.name_of(node, n)) for node in nodes for n in range(sharing.devices))
        return max(sharing.units - self.used.get(place, 0) for place in places)

    def could_be_bound(self, nodes: Iterable[str]) -> list[str]:
        """Pods that wait although one device of these nodes has room for them. For pods of one resource each."""
        most = {one.resource: self.free(one, nodes) for one in self.sharings}
        return [
            pod["metadata"]["name"]
            for pod in self.pending()
            for one in self.sharings
            if 0 < one.asked_of(pod) <= most[one.resource]
        ]

"""Feed: keeps a view true to the API server, by one watch of nodes and one of pods, and of ConfigMaps where it asks.

Owns when the view is complete, how fresh it is, and who must hear that room has become free.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

from fairlead.cluster.client import Client
from fairlead.cluster.errors import ClusterError
from fairlead.cluster.kinds import CONFIG_MAPS, NODES, PODS
from fairlead.cluster.reflector import Reflector, is_older
from fairlead.model.ports import Clock
from fairlead.scheduler.objects import ConfigMapObject, NodeObject, PodObject
from fairlead.scheduler.view import View

# Pods that have ended hold nothing: the server leaves them out, and reports one that ends as deleted.
NAMESPACE = "kube-system"  # of the ConfigMaps
_INDEX = re.compile("[0-9]{1,3}")
RUNNING = "status.phase!=Succeeded,status.phase!=Failed"


class Feed:
    """Run it as a task."""

    def __init__(self, client: Client, view: View, on_room: Callable[[], None], *, maps: bool = True) -> None:
        """`on_room`: called after a change by which a pod that was refused may fit. `maps`: whether they are read."""
        self.view = view
        self.maps: _Maps | None = None
        self.nodes = _Nodes(view, on_room, client.clock)
        self.pods = _Pods(view, on_room, client.clock)
        self._nodes = Reflector(client, NODES, NodeObject, self.nodes, shrink=view.reader.small_node)
        self._pods = Reflector(client, PODS, PodObject, self.pods, fields=RUNNING, shrink=view.reader.small_pod)
        self._maps: Reflector[ConfigMapObject] | None = None
        prefixes = {one.contract.unhealthy_map for one in view.terms} - {""}
        if prefixes and maps:
            self.maps = _Maps(view, on_room, client.clock, prefixes.pop())
            self._maps = Reflector(client, CONFIG_MAPS, ConfigMapObject, self.maps, namespace=NAMESPACE)

    @property
    def ready(self) -> bool:
        """Whether both lists were read. Before that, nothing is known of what pods hold."""
        return self.nodes.complete and self.pods.complete

    @property
    def halves(self) -> dict[str, Half]:
        """By the kind of their objects."""
        return {"nodes": self.nodes, "pods": self.pods, **({"configmaps": self.maps} if self.maps is not None else {})}

    @property
    def problem(self) -> str:
        return self.nodes.problem or self.pods.problem or (self.maps.problem if self.maps is not None else "")

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._nodes.run())
            group.create_task(self._pods.run())
            if self._maps is not None:
                group.create_task(self._maps.run())

    async def wait_for(self, version: str, timeout_s: float) -> None:
        """Until the watch of pods has shown this version, or the time is over."""
        try:
            async with asyncio.timeout(timeout_s):
                while is_older(self.pods.version, version):
                    self.pods.news.clear()
                    await self.pods.news.wait()
        except TimeoutError:
            return


class Half:
    """What the stores have in common."""

    def __init__(self, view: View, on_room: Callable[[], None], clock: Clock) -> None:
        self._view, self._on_room, self._clock = view, on_room, clock
        self.complete = False
        self.problem = ""
        self.version = ""
        self.news = asyncio.Event()
        self.lists = 0  # read in all; after the first, because a watch could not go on
        self.losses = 0  # times that the server could not be asked
        self.heard_s = 0.0  # when it last answered, by the wall clock

    def heard(self) -> None:
        self.problem = ""
        self.heard_s = self._clock.now()

    def lost(self, error: ClusterError) -> None:
        self.problem = str(error)
        self.losses += 1

    def _listed(self) -> None:
        self.complete = True
        self.lists += 1

    def _seen(self, version: str) -> None:
        if is_older(self.version, version) or not self.version:
            self.version = version
        self.news.set()


class _Nodes(Half):
    def replace(self, items: tuple[NodeObject, ...], version: str, began_s: float) -> bool:
        del version, began_s
        here = {node.metadata.name for node in items}
        changed = self._view.put_nodes(items)
        for name in self._view.node_names() - here:
            self._view.drop_node(name)
        self._listed()
        self._on_room()
        return changed

    def put(self, item: NodeObject) -> None:
        if self._view.put_node(item):
            self._on_room()

    def drop(self, item: NodeObject) -> None:
        self._view.drop_node(item.metadata.name)


class _Pods(Half):
    def replace(self, items: tuple[PodObject, ...], version: str, began_s: float) -> bool:
        del began_s
        here = {pod.metadata.uid for pod in items}
        for pod in items:
            self._view.put_pod(pod, small=True)
        gone = [uid for uid in self._view.pods() if uid not in here]
        for uid in gone:
            self._view.drop_pod(uid)
        self._listed()
        self._seen(version)
        self._on_room()
        return bool(gone)

    def put(self, item: PodObject) -> None:
        freed = self._view.put_pod(item)
        self._seen(item.metadata.resource_version)
        if freed:
            self._on_room()

    def drop(self, item: PodObject) -> None:
        freed = self._view.drop_pod(item.metadata.uid)
        self._seen(item.metadata.resource_version)
        if freed:
            self._on_room()


class _Maps(Half):
    """ConfigMaps that list the unusable devices of a node. A word that is no index says nothing."""

    def __init__(self, view: View, on_room: Callable[[], None], clock: Clock, prefix: str) -> None:
        super().__init__(view, on_room, clock)
        self._prefix = prefix

    def replace(self, items: tuple[ConfigMapObject, ...], version: str, began_s: float) -> bool:
        del version, began_s
        here = {name for item in items if (name := self._node(item))}
        changed = bool([item for item in items if self._put(item)])
        for name in self._view.unhealthy_nodes() - here:
            changed |= self._view.put_unhealthy(name, frozenset())
        self._listed()
        return changed

    def put(self, item: ConfigMapObject) -> None:
        if self._put(item):
            self._on_room()

    def drop(self, item: ConfigMapObject) -> None:
        if (name := self._node(item)) and self._view.put_unhealthy(name, frozenset()):
            self._on_room()

    def _node(self, item: ConfigMapObject) -> str:
        name = item.metadata.name
        return name.removeprefix(self._prefix) if name.startswith(self._prefix) else ""

    def _put(self, item: ConfigMapObject) -> bool:
        if not (name := self._node(item)):
            return False
        words = (word.strip() for word in (item.data.gpus if item.data is not None else "").split(","))
        return self._view.put_unhealthy(name, frozenset(word for word in words if _INDEX.fullmatch(word)))

"""Marking: writes on pods and on the node what admissions have led to. Later, and again until it stands there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from fairlead.app.cluster import Cluster
from fairlead.cluster.backoff import wait_s
from fairlead.cluster.client import Anything
from fairlead.cluster.errors import ClusterError, NotFound
from fairlead.cluster.kinds import NODES
from fairlead.cluster.patches import MergePatch
from fairlead.cluster.pods import PodCache
from fairlead.kubelet.service import Record
from fairlead.model.assign import NOW_NS
from fairlead.model.pod import Pod
from fairlead.model.ports import Clock


class Marker:
    """Say what shall stand there at any time; run it as a task."""

    def __init__(
        self, cluster: Cluster, pods: PodCache, clock: Clock, record: Record, note: Callable[[str, str], None]
    ) -> None:
        self._client, self._node = cluster.client, cluster.node
        self._pods = pods
        self._clock = clock
        self._record = record
        self._note = note
        self._due: dict[str, tuple[Pod, dict[str, str]]] = {}  # by uid
        self._locks: set[str] = set()
        self._stir = asyncio.Event()
        self._failures = 0

    def set(self, pod: Pod, annotations: Mapping[str, str]) -> None:
        known = self._due.get(pod.uid, (pod, {}))[1]
        self._due[pod.uid] = (pod, known | dict(annotations))
        self._stir.set()

    def unlock(self, annotation: str) -> None:
        self._locks.add(annotation)
        self._stir.set()

    async def run(self) -> None:
        while True:
            await self._stir.wait()
            self._stir.clear()
            problem = "; ".join(filter(None, (await self._unlock(), await self._mark())))
            self._note("marks", problem)
            self._failures = self._failures + 1 if problem else 0
            if problem:
                await self._clock.sleep(wait_s(self._failures - 1, self._client.rng))
                self._stir.set()

    async def _unlock(self) -> str:
        for annotation in list(self._locks):
            self._locks.discard(annotation)  # a lock that is set meanwhile is another's
            patch = MergePatch({"metadata": {"annotations": {annotation: None}}})
            try:
                await self._client.patch(NODES, self._node, patch, Anything)
            except ClusterError as error:
                self._locks.add(annotation)
                return f"node {self._node!r} keeps its annotation {annotation}: {error}"
        return ""

    async def _mark(self) -> str:
        problem = ""
        for uid in list(self._due):
            pod, wanted = self._due.pop(uid)
            now = self._pods.now.pods.get(uid)
            if now is None and self._pods.now.complete:
                continue  # it is gone
            texts = {key: text.replace(NOW_NS, str(int(self._clock.now() * 1e9))) for key, text in wanted.items()}
            known = now.annotations if now is not None else {}
            if all(known.get(key) == text for key, text in texts.items()):
                continue
            # The uid: a pod of the same name may have taken its place.
            patch = MergePatch({"metadata": {"uid": uid, "annotations": texts}})
            try:
                await self._pods.annotate(pod, patch)
            except NotFound:
                continue
            except ClusterError as error:
                self._due[uid] = (pod, wanted | self._due.get(uid, (pod, {}))[1])
                problem = problem or f"pod {pod} is not marked: {error}"
            else:
                self._record("assignment-marked", pod=str(pod), annotations=texts)
        return problem

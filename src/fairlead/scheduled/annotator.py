"""The annotator: writes on pods and on the node what admissions have led to. Later, and again until it is done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial

from fairlead.cluster.client import AnyObject
from fairlead.cluster.cluster import Cluster
from fairlead.cluster.errors import ClusterError, NotFound
from fairlead.cluster.kinds import NODES
from fairlead.cluster.patches import MergePatch
from fairlead.cluster.pods import PodCache
from fairlead.kit.supervise import SupervisedLoop
from fairlead.model.assign import NOW_NS
from fairlead.model.errors import FairleadError
from fairlead.model.pod import Pod
from fairlead.model.ports import Clock, Record


class Annotator:
    """Say what shall stand there at any time; run it as a task."""

    def __init__(
        self, cluster: Cluster, pods: PodCache, clock: Clock, record: Record, note: Callable[[str, str], None]
    ) -> None:
        self._client, self._node = cluster.client, cluster.node
        self._pods = pods
        self._clock = clock
        self._record = record
        self._pending: dict[str, tuple[Pod, dict[str, str]]] = {}  # by uid
        self._locks: set[str] = set()
        self._due = asyncio.Event()
        self._loop = SupervisedLoop(
            "annotator",
            self._write,
            clock=clock,
            rng=cluster.client.rng,
            report=partial(note, "annotations"),
            record=record,
            due=self._due,
        )

    def set(self, pod: Pod, annotations: Mapping[str, str]) -> None:
        known = self._pending.get(pod.uid, (pod, {}))[1]
        self._pending[pod.uid] = (pod, known | dict(annotations))
        self._due.set()

    def unlock(self, annotation: str) -> None:
        self._locks.add(annotation)
        self._due.set()

    async def run(self) -> None:
        self._due.set()  # also when it is run again: the last run may have left something
        await self._loop.run()

    async def _write(self) -> None:
        if problems := [problem for problem in (await self._unlock(), await self._annotate()) if problem]:
            raise FairleadError("; ".join(problems))

    async def _unlock(self) -> str:
        for annotation in list(self._locks):
            self._locks.discard(annotation)  # a lock that is set meanwhile is another's
            patch = MergePatch({"metadata": {"annotations": {annotation: None}}})
            try:
                await self._client.patch(NODES, self._node, patch, AnyObject)
            except BaseException as error:
                self._locks.add(annotation)  # for the next turn, also when this one is cancelled
                if not isinstance(error, ClusterError):
                    raise
                return f"node {self._node!r} keeps its annotation {annotation}: {error}"
        return ""

    async def _annotate(self) -> str:
        problem = ""
        for uid in list(self._pending):
            pod, wanted = self._pending.pop(uid)
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
            except BaseException as error:
                self._pending[uid] = (pod, wanted | self._pending.get(uid, (pod, {}))[1])
                if not isinstance(error, ClusterError):
                    raise
                problem = problem or f"pod {pod} is not annotated: {error}"
            else:
                self._record("assignment-annotated", pod=str(pod), annotations=texts)
        return problem

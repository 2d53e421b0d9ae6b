"""This node's pods, fed by one watch, so that few calls of the kubelet wait for the API server.

Those that find no answer here wait for a read: a watch may be behind, or silent for ever. Keeps the fields that are
used and no others: a pod of a megabyte takes a kilobyte here. Ended pods are left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from itertools import islice
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from fairlead.cluster.client import Client
from fairlead.cluster.errors import ClusterError, TooSlow
from fairlead.cluster.kinds import PODS
from fairlead.cluster.objects import Keeps, PodObject, read_pod
from fairlead.cluster.patches import Patch
from fairlead.cluster.reflector import Reflector, is_older
from fairlead.kit.latest import Latest
from fairlead.model.pod import Pod
from fairlead.model.ports import Clock
from fairlead.policy.scheduled.waitbudget import WaitBudget

R = TypeVar("R")

PODS_MAX = 5000  # ten times the largest node; a longer list is a mistake
AGAIN_S = 1.0  # the pause between reads while a question waits
ENDED = frozenset({"Succeeded", "Failed"})


class PodSnapshot(Struct, frozen=True):
    """A snapshot. `complete`: at least one list was read."""

    pods: Mapping[str, Pod] = {}  # by uid
    complete: bool = False
    left_out: int = 0  # more than PODS_MAX
    problem: str = ""  # the server cannot be asked: what is known may be out of date
    stalled: str = ""  # the watch does not deliver changes; reads do
    read_s: float = float("-inf")  # monotonic: when the last read began that brought all pods


class PodCache:
    """Run it as a task; read `now` at any time."""

    def __init__(self, client: Client, node: str, *, keeps: Keeps = lambda _key: True) -> None:
        """`keeps`: which keys of annotations and labels are worth memory."""
        self._client = client
        self._clock: Clock = client.clock
        self._node = node
        self._keeps = keeps
        self._arrivals = 0  # the kubelet watches the same pods, and admits them in the order in which they come
        self.latest: Latest[PodSnapshot] = Latest(PodSnapshot())
        # The server leaves out pods that have ended, and reports one that ends as deleted.
        fields = f"spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed"
        self._reflector = Reflector(client, PODS, PodObject, self, fields=fields, on_stall=self._stall)
        self._heard_s = self._checked_s = self._failed_s = float("-inf")
        self.patience = WaitBudget()  # of the kubelet, with all that wait for news

    @property
    def now(self) -> PodSnapshot:
        return self.latest.value

    @property
    def silent_s(self) -> float:
        """How long the server has said nothing."""
        return self._clock.monotonic() - self._heard_s

    @property
    def is_away(self) -> bool:
        """Whether a read has failed a moment ago: another one may wait."""
        return bool(self.now.problem) and self._clock.monotonic() - self._failed_s < AGAIN_S

    async def run(self) -> None:
        await self._reflector.run()

    def forget(self) -> None:
        """Reads everything anew when it is run again."""
        self._reflector.forget()
        self._heard_s = float("-inf")
        self.latest.set(PodSnapshot())

    async def check(self) -> None:
        """Reads all pods from the server, once, within `CHECK_S`: then the cache has every pod the kubelet may ask for.

        Its failure is the cache's problem, and no error.
        """
        self._checked_s = self._clock.monotonic()
        try:
            await self._reflector.check()
        except ClusterError:
            self._failed_s = self._clock.monotonic()

    async def ping(self) -> None:
        """See `Reflector.ping`."""
        await self._reflector.ping()

    async def annotate(self, pod: Pod, patch: Patch) -> None:
        """Changes a pod, and knows of it at once: a watch would deliver it only later."""
        answer = await self._client.patch(PODS, pod.name, patch, PodObject, namespace=pod.namespace)
        if answer.metadata.uid in self.now.pods:  # the watch may have reported its end before the answer came
            self.put(answer)

    async def wait_for(self, find: Callable[[PodSnapshot], R | None], timeout_s: float, what: str = "a pod") -> R:
        """The first answer that is not None, now or after a change. TooSlow when the time is over.

        Meanwhile the server is asked about once a second: the caller waits for no back-off and for no silent watch.
        """
        asking: asyncio.Task[None] | None = None
        try:
            async with asyncio.timeout(timeout_s):
                async for now in self.latest.follow():
                    if (found := find(now)) is not None:
                        return found
                    asking = asking or asyncio.create_task(self._ask())
        except TimeoutError:
            pass
        finally:
            if asking is not None:
                asking.cancel()
        hint = f"{what} on node {self._node!r}"
        raise TooSlow(f"{hint} ({self.now.problem})" if self.now.problem else hint, timeout_s)

    async def wait_for_news(self, seen: int, timeout_s: float) -> None:
        """Until `latest` has another version than the one that was seen. TooSlow when the time is over."""
        began_s = self._clock.monotonic()
        try:
            await self.wait_for(lambda _: True if self.latest.version != seen else None, timeout_s)
        finally:
            now_s = self._clock.monotonic()
            self.patience.spend(now_s, now_s - began_s)

    async def _ask(self) -> None:
        while True:
            await self._clock.sleep(self._checked_s + AGAIN_S - self._clock.monotonic())
            await self.check()

    # --- What the reflector calls ---------------------------------------------------------------------------------

    def replace(self, items: tuple[PodObject, ...], version: str = "", began_s: float = float("-inf")) -> bool:
        self._arrivals += 1
        known = self.now.pods
        pods = {pod.uid: pod for item in items if self._is_here(pod := self._pod(item))}
        if version:
            pods |= {uid: pod for uid, pod in known.items() if is_older(_version(pods.get(uid), version), pod.version)}
        kept: Mapping[str, Pod] = dict(islice(pods.items(), PODS_MAX))
        news = not self.now.complete or kept != known
        if not news:
            kept = known  # the very same: what was made of them holds
        self._set(pods=kept, complete=True, left_out=max(0, len(pods) - PODS_MAX), read_s=began_s)
        return news

    def put(self, item: PodObject) -> None:
        known = self.now.pods.get(item.metadata.uid)
        if known is None:
            self._arrivals += 1
        pod = self._pod(item)
        if known is not None and is_older(pod.version, known.version):
            return
        if not self._is_here(pod):
            self.drop(item)
        elif pod.uid in self.now.pods or len(self.now.pods) < PODS_MAX:
            self._set(pods={**self.now.pods, pod.uid: pod})
        else:
            self._set(left_out=self.now.left_out + 1)

    def drop(self, item: PodObject) -> None:
        if item.metadata.uid in self.now.pods:
            self._set(pods={uid: pod for uid, pod in self.now.pods.items() if uid != item.metadata.uid})

    def heard(self) -> None:
        self._heard_s = self._clock.monotonic()
        self._set(problem="")

    def lost(self, error: ClusterError) -> None:
        self._set(problem=str(error))

    def _stall(self, silent_s: float) -> None:
        self._set(
            stalled=f"the watch of pods tells nothing: it was silent for {silent_s:.0f} s while pods changed. They are "
            "read when the kubelet asks. Is there a proxy before the API server that holds answers back?"
            if silent_s
            else ""
        )

    def _set(self, **changes: object) -> None:
        self.latest.set(replace(self.now, **changes))

    def _is_here(self, pod: Pod) -> bool:
        return pod.node == self._node and pod.phase not in ENDED

    def _pod(self, item: PodObject) -> Pod:
        known = self.now.pods.get(item.metadata.uid)
        return read_pod(item, self._keeps, known.arrived if known is not None else self._arrivals)


def _version(pod: Pod | None, otherwise: str) -> str:
    return pod.version if pod is not None else otherwise

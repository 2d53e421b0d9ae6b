"""Pods that come and go while something else happens: which were refused, and when; what the kubelet had meanwhile."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from fairlead.testing.measure import Looks
from tests.node.cluster import POD_S, Asks, Cluster, Pod
from tests.node.rig.places import NODE
from tests.node.rig.steps import until

PACE_S = 0.7
# Pods that have not ended: on a busy machine more would hold every device, and be refused for that.
UNDER_WAY = 4
OVER = {"Succeeded", "Failed"}


@dataclass(frozen=True, slots=True)
class Refused:
    name: str
    reason: str
    message: str
    at: float  # to the second, rounded down


class Traffic:
    """A new pod in every moment, each as short as a pod can be.

    The scheduler holds pods back while the node says that it has nothing. `straight`: they go past it to the kubelet.
    """

    def __init__(self, cluster: Cluster, asks: Asks, *, straight: bool = False) -> None:
        self._cluster = cluster
        self._asks = asks
        self._more = {"restartPolicy": "Never", **({"nodeName": NODE} if straight else {})}
        self._pods: list[Pod] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        until(lambda: len(self._pods) > 1, "pods come")
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def refused(self) -> list[Refused]:
        """Once every pod has come to an end."""
        seen: dict[str, Any] = {}

        def settled() -> bool:
            seen.update({pod.name: pod.look()["status"] for pod in self._pods if pod.name not in seen})
            for name in [name for name, status in seen.items() if status.get("phase") not in OVER]:
                del seen[name]
            return len(seen) == len(self._pods)

        until(settled, "short pods end", POD_S)
        return [_refused(name, status) for name, status in seen.items() if status["phase"] == "Failed"]

    def wait_more(self, count: int) -> None:
        before = self.count
        until(lambda: self.count >= before + count, "more pods come")

    @property
    def count(self) -> int:
        return len(self._pods)

    def _run(self) -> None:
        first = time.monotonic_ns()
        under_way: list[Pod] = []
        while not self._over.wait(PACE_S):
            with suppress(OSError):
                under_way = [pod for pod in under_way if pod.phase not in OVER]
            if len(under_way) >= UNDER_WAY:
                continue
            name = f"passes-{first % 10**6}-{len(self._pods)}"
            with suppress(OSError):  # the API server is slow: the next one
                self._pods.append(self._cluster.start_pod(name, self._asks, script="exit 0", **self._more))
                under_way.append(self._pods[-1])


class Watch(Looks):
    """How much the kubelet has to give, asked again and again; when it was less, and for how long."""

    def __init__(self, cluster: Cluster, resource: str, count: int) -> None:
        super().__init__(0.02, "watch")  # the kubelet answers 100 questions a second, and others ask too
        self._cluster, self._resource, self._count = cluster, resource, count
        self._before_s = time.monotonic()
        self.looks = 0
        self.less_s = 0.0

    def look(self) -> None:
        count, now_s = len(self._cluster.offered(self._resource)), time.monotonic()
        self.looks += 1
        if count < self._count:
            self.less_s += now_s - self._before_s
        self._before_s = now_s


def _refused(name: str, status: Any) -> Refused:
    at = datetime.fromisoformat(status["startTime"]).timestamp()
    return Refused(name, status.get("reason", ""), status.get("message", ""), at)

"""The daemon and the kubelet come and go, killed or asked to end: each in turn."""

from __future__ import annotations

import signal
import time
from itertools import count

from tests.node.cluster import Cluster
from tests.node.daemon import Fairlead
from tests.node.rig.node import start_kubelet, stop_kubelet


class Trouble:
    def __init__(self, cluster: Cluster, daemon: Fairlead, resource: str, total: int) -> None:
        self._cluster = cluster
        self._daemon = daemon
        self._resource = resource
        self._total = total
        self._numbers = count()

    def begin(self) -> None:
        number = next(self._numbers)
        with_signal = (signal.SIGKILL, signal.SIGTERM)[number // 2 % 2]
        if number % 2:
            stop_kubelet(with_signal)
            start_kubelet(wait=False)
        else:
            self._daemon.end(with_signal)
            self._daemon.start()

    def wait_over(self) -> None:
        wait_back(self._cluster, self._resource, self._total)


def wait_back(cluster: Cluster, resource: str, total: int) -> None:
    """Until the kubelet has the whole list, and has told the API server."""
    began = time.time()
    cluster.wait_offered(resource, total)
    cluster.wait_numbers(resource, total, total, after=began)

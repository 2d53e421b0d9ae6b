"""Binder: binds a pod in one write that carries its node, its annotations and its uid, and finds out what became of it.

The API server sets the node and merges the annotations in one step, with the uid as a condition. So a crash at any
instant leaves all of it or nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from enum import Enum

from msgspec import Struct
from msgspec.structs import replace

from fairlead.cluster.client import AnyObject, Client
from fairlead.cluster.errors import ClusterError, Conflict, NotFound, StatusError
from fairlead.cluster.kinds import PODS
from fairlead.scheduler.objects import PodObject

PAUSE_S = 0.1  # before the first write that is sent again; then twice as long each time


class Outcome(Enum):
    BOUND = "bound"
    REFUSED = "refused"  # it is certain that the pod is not where it was to be, and will not be
    UNKNOWN = "unknown"  # no answer came in time; the write may still be done


class Bound(Struct, frozen=True):
    outcome: Outcome
    reason: str = ""
    found: PodObject | None = None  # the pod as it is, where it had to be read
    conflict: bool = False  # another client was first


class Binder:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def bind(
        self, namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str], timeout_s: float
    ) -> Bound:
        """Writes until it is certain what became of it.

        A write whose answer is lost may still be done, and later than any look at the pod. So the same write is sent
        again: the pod ends on this node and on these devices, whichever of them is done.
        """
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "uid": uid, "annotations": dict(annotations)},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        pause_s = PAUSE_S
        reason = f"the API server has not answered in {timeout_s:g} s"
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    try:
                        async with asyncio.timeout(timeout_s / 2):  # so that a write that hangs can be sent again
                            await self._client.create(
                                PODS, body, AnyObject, name=name, namespace=namespace, subresource="binding"
                            )
                        return Bound(Outcome.BOUND)
                    except TimeoutError:
                        certain = conflict = False
                    except ClusterError as error:
                        reason, certain = str(error), isinstance(error, StatusError) and not error.temporary
                        conflict = isinstance(error, Conflict)
                    try:
                        found = await self._client.get(PODS, name, PodObject, namespace=namespace)
                    except NotFound:
                        return Bound(Outcome.REFUSED, f"{reason}; the pod is gone")
                    except ClusterError:
                        pass
                    else:
                        judged = _judge(found, uid, node, annotations, reason)
                        if judged is None and certain:
                            judged = Bound(Outcome.REFUSED, f"{reason}; it is bound to no node", found)
                        if judged is not None:
                            return replace(judged, conflict=conflict)
                    await self._client.clock.sleep(pause_s)
                    pause_s *= 2
        except TimeoutError:
            return Bound(Outcome.UNKNOWN, reason)


def _judge(found: PodObject, uid: str, node: str, annotations: Mapping[str, str], reason: str) -> Bound | None:
    """What became of the write; None while the pod is bound to no node."""
    if found.metadata.uid != uid:
        return Bound(Outcome.REFUSED, f"{reason}; another pod has this name now")
    if not found.spec.node_name:
        return None
    written = found.metadata.annotations or {}
    if found.spec.node_name == node and all(written.get(key) == text for key, text in annotations.items()):
        return Bound(Outcome.BOUND)
    return Bound(Outcome.REFUSED, f"{reason}; it is bound to {found.spec.node_name}", found)

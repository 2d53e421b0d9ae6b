"""Where labels go: a file that node-feature-discovery reads, a NodeFeature object, or the node itself. Reconciled."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from fairlead.cluster.client import Client
from fairlead.cluster.errors import ClusterError, Conflict, NotFound
from fairlead.cluster.kinds import NODE_FEATURES, NODES, PODS
from fairlead.kit import files
from fairlead.model.errors import HostError
from fairlead.programs.labels.catalogue import PREFIX

OWNED = "fairlead.dev/nvidia-labels"  # on the node: the labels that are ours to remove
_TRIES = 3
_NODE_NAME = "nfd.node.kubernetes.io/node-name"


class Output(Protocol):
    async def write(self, labels: Mapping[str, str]) -> None: ...

    async def withdraw(self) -> None:
        """The program ends, and the labels will not be kept up to date."""
        ...


class FileOutput:
    """Written whole, then put in place. An empty path: standard output."""

    def __init__(self, path: str, *, keep: bool) -> None:
        self._path = Path(path) if path else None
        self._keep = keep

    async def write(self, labels: Mapping[str, str]) -> None:
        text = "".join(f"{name}={value}\n" for name, value in labels.items())
        if self._path is None:
            sys.stdout.write(text)
            sys.stdout.flush()
            return
        try:
            files.replace(self._path, text.encode())
        except OSError as error:
            why = f"{self._path}: cannot be written ({error.strerror})"
            raise HostError(f"{why}. Choose another with --output-file") from error

    async def withdraw(self) -> None:
        if self._path is not None and not self._keep:
            with contextlib.suppress(OSError):
                self._path.unlink()


class _Owner(Struct, frozen=True, rename="camel", omit_defaults=True):
    api_version: str = msgspec.field(name="apiVersion", default="")
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class _Meta(Struct, frozen=True, rename="camel"):
    name: str = ""
    uid: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: list[_Owner] = []
    resource_version: str = ""


class _Spec(Struct, frozen=True):
    labels: dict[str, str] = {}


class _Feature(Struct, frozen=True):
    metadata: _Meta = _Meta()
    spec: _Spec = _Spec()


class _Object(Struct, frozen=True):
    metadata: _Meta = _Meta()


class FeatureOutput:
    """A NodeFeature object of our own. After another client's change in between it tries again."""

    def __init__(
        self, client: Client, node: str, namespace: str, pod: str = "", note: Callable[[str], None] = lambda _: None
    ) -> None:
        self._client = client
        self._node = node
        self._namespace = namespace
        self._pod = pod
        self._note = note
        self._owners: list[_Owner] | None = None

    @property
    def name(self) -> str:
        return f"nvidia-features-for-{self._node}"

    async def write(self, labels: Mapping[str, str]) -> None:
        owners = await self._own()
        await until_free(lambda: self._write(dict(labels), owners))

    async def _write(self, labels: dict[str, str], owners: list[_Owner] | None) -> None:
        where = {"namespace": self._namespace}
        try:
            found = await self._client.get(NODE_FEATURES, self.name, _Feature, **where)
        except NotFound:
            body = {
                "apiVersion": "nfd.k8s-sigs.io/v1alpha1",
                "kind": "NodeFeature",
                "metadata": {
                    "name": self.name,
                    "namespace": self._namespace,
                    "labels": {_NODE_NAME: self._node},
                    **({"ownerReferences": owners} if owners else {}),
                },
                "spec": {"features": {"flags": {}, "attributes": {}, "instances": {}}, "labels": labels},
            }
            await self._client.create(NODE_FEATURES, body, _Feature, **where)
            return
        meta = found.metadata
        marked = meta.labels.get(_NODE_NAME) == self._node
        if owners is None:
            owners = meta.owner_references  # not known now: the owners stay
        if found.spec.labels == labels and marked and meta.owner_references == owners:
            return
        stale = dict.fromkeys(found.spec.labels.keys() - labels.keys())
        body = {
            "metadata": {
                "resourceVersion": meta.resource_version,
                "labels": {_NODE_NAME: self._node},
                "ownerReferences": owners,
            },
            "spec": {"labels": {**stale, **labels}},
        }
        await self._client.change(NODE_FEATURES, self.name, body, **where)

    async def _own(self) -> list[_Owner] | None:
        """The DaemonSet of our pod, and the pod: the object goes with them. None: it could not be found out."""
        if self._owners is not None:
            return self._owners
        if not self._pod:
            self._owners = []
            return self._owners
        try:
            pod = await self._client.get(PODS, self._pod, _Object, namespace=self._namespace)
        except ClusterError as error:
            self._note(f"the owner of the labels is not known: {error}")
            return None
        self._owners = []
        sets = [one for one in pod.metadata.owner_references if one.kind == "DaemonSet"]
        if sets:
            mine = _Owner("v1", "Pod", pod.metadata.name, pod.metadata.uid)
            self._owners = [*sets[:1], mine]
        return self._owners

    async def withdraw(self) -> None:
        """It stays: its owners take it along."""


class NodeOutput:
    """Straight to the node's labels. Which are ours stands in an annotation, so that stale ones can go."""

    def __init__(self, client: Client, node: str) -> None:
        self._client = client
        self._node = node

    async def write(self, labels: Mapping[str, str]) -> None:
        await until_free(lambda: self._write(labels))

    async def _write(self, labels: Mapping[str, str]) -> None:
        node = await self._client.get(NODES, self._node, _Object)
        named = node.metadata.annotations.get(OWNED, "").split(",")
        before = {PREFIX + name for name in named if name}
        changed = difference(node.metadata.labels, labels, lambda name, _: name in before)
        owned = ",".join(sorted(name.removeprefix(PREFIX) for name in labels))
        if changed or node.metadata.annotations.get(OWNED, "") != owned:
            meta: dict[str, Any] = {"labels": changed, "annotations": {OWNED: owned or None}}
            await self._client.change(NODES, self._node, {"metadata": meta})

    async def withdraw(self) -> None:
        """They stay: an update of ours must not strip the node for a moment."""


def difference(
    there: Mapping[str, str], labels: Mapping[str, str], ours: Callable[[str, str], bool]
) -> dict[str, str | None]:
    """What makes the labels of a node right, as a merge patch has it: None removes. `ours`: by name and value."""
    stale = [name for name, value in there.items() if name not in labels and ours(name, value)]
    return {name: value for name, value in labels.items() if there.get(name) != value} | dict.fromkeys(stale)


async def until_free(write: Callable[[], Awaitable[None]]) -> None:
    """Works the change out again when another writer came between the read and the write; a few times."""
    for left in reversed(range(_TRIES)):
        try:
            await write()
        except Conflict:
            if not left:
                raise
        else:
            return

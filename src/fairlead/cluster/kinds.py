"""The kinds of objects that Fairlead reads and writes, their paths, and requests for them."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote, urlencode

from msgspec import Struct

from fairlead.cluster.rbac import Rule


class Kind(Struct, frozen=True):
    group: str  # empty: the core group
    version: str
    plural: str
    namespaced: bool = False

    def path(self, name: str = "", *, namespace: str = "", subresource: str = "") -> str:
        """The path of one object, or of all. A namespaced kind without a namespace means all namespaces."""
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts += [self.plural, *([name] if name else []), *([subresource] if subresource else [])]
        return "/" + "/".join(quote(part, safe="") for part in parts)


NODES = Kind("", "v1", "nodes")
PODS = Kind("", "v1", "pods", namespaced=True)
CONFIG_MAPS = Kind("", "v1", "configmaps", namespaced=True)
EVENTS = Kind("", "v1", "events", namespaced=True)
DAEMON_SETS = Kind("apps", "v1", "daemonsets", namespaced=True)
RUNTIME_CLASSES = Kind("node.k8s.io", "v1", "runtimeclasses")
RESOURCE_SLICES = Kind("resource.k8s.io", "v1", "resourceslices")
REVIEWS = Kind("authorization.k8s.io", "v1", "selfsubjectaccessreviews")
NODE_FEATURES = Kind("nfd.k8s-sigs.io", "v1alpha1", "nodefeatures", namespaced=True)


_METHODS = {"patch": "PATCH", "create": "POST", "update": "PUT", "delete": "DELETE"}


class Request(Struct, frozen=True):
    """One request, in the terms of RBAC."""

    verb: str  # get, list, watch, patch, create, update, delete
    kind: Kind
    name: str = ""
    namespace: str = ""
    subresource: str = ""
    query: Mapping[str, str] = {}
    body: bytes = b""
    content_type: str = "application/json"

    @property
    def method(self) -> str:
        return _METHODS.get(self.verb, "GET")

    @property
    def target(self) -> str:
        path = self.kind.path(self.name, namespace=self.namespace, subresource=self.subresource)
        return f"{path}?{urlencode(self.query)}" if self.query else path

    @property
    def resource(self) -> str:
        return f"{self.kind.plural}/{self.subresource}" if self.subresource else self.kind.plural

    @property
    def rule(self) -> Rule:
        """The rule that a role must have to allow it."""
        return Rule(self.kind.group, self.resource, (self.verb,))

    def __str__(self) -> str:
        """`patch nodes/status of 'node-1'`"""
        text = f"{self.verb} {self.resource}"
        if self.name:
            text += f" of {self.name!r}"
        return f"{text} in namespace {self.namespace!r}" if self.namespace else text

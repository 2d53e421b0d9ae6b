"""The kinds of objects we speak of, their paths, and what a request is about, for its errors."""

from __future__ import annotations

from urllib.parse import quote

from msgspec import Struct

from fairlead.cluster.rbac import Rule


class Kind(Struct, frozen=True):
    group: str  # empty: the core group
    version: str
    plural: str
    namespaced: bool = False

    def path(self, name: str = "", *, namespace: str = "", subresource: str = "") -> str:
        """The path of one object, or of all. A namespaced kind without a namespace means all namespaces."""
        words = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if self.namespaced and namespace:
            words += ["namespaces", namespace]
        words += [self.plural, *([name] if name else []), *([subresource] if subresource else [])]
        return "/" + "/".join(quote(word, safe="") for word in words)


NODES = Kind("", "v1", "nodes")
PODS = Kind("", "v1", "pods", namespaced=True)
NODE_FEATURES = Kind("nfd.k8s-sigs.io", "v1alpha1", "nodefeatures", namespaced=True)


class Ask(Struct, frozen=True):
    """What a request wants, in the words of RBAC."""

    verb: str  # get, list, watch, patch, create, update, delete
    kind: Kind
    name: str = ""
    namespace: str = ""
    subresource: str = ""

    @property
    def resource(self) -> str:
        return f"{self.kind.plural}/{self.subresource}" if self.subresource else self.kind.plural

    @property
    def rule(self) -> Rule:
        return Rule(self.kind.group, self.resource, (self.verb,))

    def __str__(self) -> str:
        """`patch nodes/status of 'node-1'`"""
        words = f"{self.verb} {self.resource}"
        if self.name:
            words += f" of {self.name!r}"
        return f"{words} in namespace {self.namespace!r}" if self.namespace else words

"""A pod, as far as it is read here."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

Amounts = Mapping[str, str]  # as written: parse where needed, for a pod may say anything


class Container(Struct, frozen=True):
    name: str
    limits: Amounts = {}
    requests: Amounts = {}
    sidecar: bool = False  # an init container that goes on running


class Pod(Struct, frozen=True):
    uid: str
    namespace: str
    name: str
    node: str = ""
    phase: str = ""
    created_s: float = 0.0
    deleting: bool = False
    annotations: Mapping[str, str] = {}
    labels: Mapping[str, str] = {}
    init_containers: tuple[Container, ...] = ()
    containers: tuple[Container, ...] = ()
    version: str = ""
    arrived: int = 0  # later pods have larger numbers; those of one list have the same

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

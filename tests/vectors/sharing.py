"""The shape of a recording of a plugin that shares GPU memory: mini (doslab.io), gpushare, volcano.

Field names are the recorder's own; README.md beside this says what they mean.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from tests.vectors.read import lines
from tests.vectors.types import Json

HERE = Path(__file__).parent
PEERS = ("mini", "gpushare", "volcano")


class _Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nothing of a recording is dropped in silence."""


class Card(_Strict, frozen=True, kw_only=True):
    index: int
    minor: int
    uuid: str
    name: str
    bus_id: str
    memory_bytes: int
    no_events: bool = False  # the driver cannot listen to it


class Objects(_Strict, frozen=True, kw_only=True):
    nodes: list[Json]
    pods: list[Json]


class Failure(_Strict, frozen=True, kw_only=True):
    """What the API server did instead of an answer, `times` times."""

    method: str
    path: str  # a regular expression
    status: int
    reason: str = ""
    message: str = ""
    times: int = 1


class Inputs(_Strict, frozen=True, kw_only=True):
    argv: list[str]
    env: dict[str, str] = {}
    config_text: str | None = None
    gpus: list[Card]
    api_objects: Objects
    api_script: list[Failure]
    hostname: str = ""
    nvml_init_return: int
    pci_numa_node: dict[str, str] | None = None
    kubelet_absent: bool
    kubelet_appears_after_s: int | None = None
    kubelet_refuses_register_with: str | None
    kubelet_pods_replies: Any = None
    stale_socket_file_before_start: bool


class Registered(_Strict, frozen=True, kw_only=True):
    version: str
    endpoint: str
    resource_name: str


class Listed(_Strict, frozen=True, kw_only=True):
    """A list of devices. Long ones are kept as counts and a sum of their ids."""

    count: int | None = None
    encoded_bytes: int | None = None
    health: dict[str, int] = {}
    topology: dict[str, int] = {}
    devices: list[Json] | None = None
    first_ids: list[str] | None = None
    last_ids: list[str] | None = None
    sorted_ids_sha256: str | None = None
    unhealthy_first_last: list[str] | None = None
    error: Json | None = None


class Answer(_Strict, frozen=True, kw_only=True):
    """What came of a call, or of a step that is no call."""

    rpc: str = ""
    request: Json | None = None
    response: Json | None = None
    error: Json | None = None
    api_requests: list[Json] | None = None
    kubelet_requests: Json | None = None
    step: str = ""
    xid: int | None = None
    uuid: str | None = None
    lists: list[Listed] | None = None
    lists_sent: int | None = None
    list_after: Listed | None = None
    node_annotations: dict[str, str] | None = None
    registered_again: bool | None = None
    stream: Json | None = None
    alive: bool | None = None

    @property
    def asked(self) -> list[list[str] | int]:
        """Of an Allocate, per container: the ids, or how many of the list's first ones."""
        wanted = [one["devices_ids"] for one in (self.request or {}).get("container_requests", ())]
        return [ids["count"] if isinstance(ids, dict) else ids for ids in wanted]

    @property
    def envs(self) -> list[dict[str, str]]:
        return [one.get("envs", {}) for one in (self.response or {}).get("container_responses", ())]


class Outputs(_Strict, frozen=True, kw_only=True):
    register: list[Registered]
    options: dict[str, bool] | None = None
    list_as_kubelet: Listed | None = None
    list_unlimited: Listed | None = None
    answers: list[Answer]
    start_api_requests: list[Json]
    start_api_requests_total: int | None = None
    stop_api_requests: list[Json]
    final_pod_annotations: dict[str, dict[str, str]]
    final_node_status: list[Json] | None = None
    final_node: list[Json] | None = None
    files_left_in_plugin_dir: list[str]
    registrations_after_kubelet_appeared: int | None = None
    alive: bool | None = None  # where it never served: whether it ran on
    exit: dict[str, int]

    @property
    def served(self) -> bool:
        return self.options is not None


class Case(_Strict, frozen=True, kw_only=True):
    peer: str
    case: str  # 010-single-match
    about: str
    inputs: Inputs
    outputs: Outputs


@functools.cache
def sharing(peer: str) -> Mapping[str, Case]:
    """By the recording's own name."""
    return {case.case: case for case in lines(HERE / peer / "cases.jsonl.gz", Case)}

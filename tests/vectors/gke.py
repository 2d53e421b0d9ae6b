"""The shape of a recording of Google's plugin for GKE. Field names are the recorder's own; see README.md."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

import msgspec

from tests.vectors.read import lines
from tests.vectors.sharing import Card, Registered
from tests.vectors.types import Json

FILE = Path(__file__).parent / "gke" / "cases.jsonl.gz"


class _Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nothing of a recording is dropped in silence."""


class Inputs(_Strict, frozen=True, kw_only=True):
    argv: list[str]
    env: dict[str, str]
    dev_files: list[str]
    gpus: list[Card]
    gpu_config_text: str | None
    fraction_divisor_text: str | None
    mig_capabilities: dict[str, dict[str, list[int]]] | None  # by GPU and instance, the minor numbers
    nvidia_caps_nodes_present: bool
    mps_control_binary: str | None
    pci_numa_node: dict[str, str]
    node: Json | None
    kubelet_sock_at_start: str
    nvml_init_return: int
    driver_version: str = ""


class Listed(_Strict, frozen=True, kw_only=True):
    count: int
    devices: list[Json]


class Answer(_Strict, frozen=True, kw_only=True):
    rpc: str = ""
    request: Json | None = None
    response: Json | None = None
    error: Json | None = None
    api_requests: list[Json] = []
    step: str = ""
    xid: int | None = None
    uuid: str | None = None
    event_type: int | None = None
    health_after: dict[str, str] | None = None
    lists_sent: int | None = None
    registered_again: int | None = None
    same_endpoint: bool | None = None
    stream: Json | None = None
    alive: bool | None = None


class Outputs(_Strict, frozen=True, kw_only=True):
    register: list[Registered]
    options: dict[str, bool] | None = None
    listed: Listed | None = msgspec.field(name="list", default=None)
    answers: list[Answer]
    api_requests: list[Json] = []
    final_node: Json | None = None
    files_left_in_plugin_dir: list[str]
    mps_control_stdin: str = ""
    alive: bool
    exit: dict[str, int]


class Case(_Strict, frozen=True, kw_only=True):
    peer: str
    case: str
    about: str
    inputs: Inputs
    outputs: Outputs


@functools.cache
def gke() -> Mapping[str, Case]:
    """By the recording's own name."""
    return {case.case: case for case in lines(FILE, Case)}

"""The shape of a recording. Field names are the recorder's own; README.md beside this says what they mean."""

from __future__ import annotations

from typing import Any

import msgspec

Json = dict[str, Any]
DeviceList = list[Json]  # ID, health, topology: sorted by ID


class _Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nothing of a recording is dropped in silence."""


class Registration(_Strict, frozen=True, kw_only=True):
    version: str
    endpoint: str
    resource_name: str
    options: dict[str, bool]


class Error(_Strict, frozen=True, kw_only=True):
    code: str
    message: str


class Wanted(_Strict, frozen=True, kw_only=True):
    """One container of a GetPreferredAllocation request."""

    available: list[str]
    must_include: list[str]
    size: int


class Preference(_Strict, frozen=True, kw_only=True):
    request: list[Wanted]
    response: list[list[str]] | None = None
    error: Error | None = None
    crash: Json | None = None  # the call killed the plugin
    variants: list[Json] | None = None  # the same request was answered differently: random order in the original
    variants_seen_in: int | None = None


class Allocation(_Strict, frozen=True, kw_only=True):
    request: list[list[str]]
    response: list[Json] | None = None
    error: Error | None = None
    variants: list[Json] | None = None
    variants_seen_in: int | None = None


class Frames(_Strict, frozen=True, kw_only=True):
    event: str
    frames: list[DeviceList]
    watch_ended: Any = None


class Resource(_Strict, frozen=True, kw_only=True):
    options: dict[str, bool] | None = None
    devices: DeviceList | None = None
    ids_in_natural_order: list[str] | None = None
    preferred: list[Preference] | None = None
    allocate: list[Allocation] | None = None
    prestart: list[Json] | None = None
    frames_at_start: list[DeviceList] | None = None
    frames_after_event: list[Frames] | None = None
    events_before_the_stream: list[str] | None = None


class Result(_Strict, frozen=True, kw_only=True):
    state: str  # serving, exited, idle, retrying
    exit_code: int | None
    stopped_by: str | None
    registrations: list[Registration]
    resources: dict[str, Resource]
    cdi_specs: dict[str, Json]
    effective_config: Json | None
    sockets: list[str]
    sockets_after_stop: list[str] | None = None
    streams_ended_with: dict[str, str] | None = None
    actions: list[Json] | None = None
    crashes: int = 0
    log_errors: list[str]
    log_warnings: list[str]
    log_info: list[str]
    log_toolkit: list[str] | None = None
    log_crash: list[str] | None = None
    stdout: str | None = None
    stdout_head: list[str]


class Vector(_Strict, frozen=True, kw_only=True):
    file: str  # the recording's own name: 009-default-a100x8-nvswitch
    name: str
    driver: str  # a key of `drivers`
    argv: list[str]
    env: dict[str, str]
    config_file: str | None
    extra: Json
    pairwise: dict[str, str] | None = None
    result: Result


class LabelResult(_Strict, frozen=True, kw_only=True):
    exit_code: int | None
    labels: dict[str, str] | None = None
    label_variants: list[Json] | None = None
    file_mode: str | None = None
    file_written: bool | None = None
    written_to: str | None = None
    timed_out: bool | None = None
    effective_config: Json | None = None
    requests: list[Json] | None = None
    log_errors: list[str] | None = None
    log_warnings: list[str] | None = None
    log_crash: list[str] | None = None


class LabelVector(_Strict, frozen=True, kw_only=True):
    file: str
    name: str
    driver: str
    argv: list[str]
    env: dict[str, str]
    config_file: str | None = None
    api_state: Any = None
    result: LabelResult

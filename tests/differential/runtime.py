"""Asks the container runtime what a kubelet has told it about a container."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

ASK_S = 10.0


def container_config(socket: Path, container: str) -> dict[str, Any]:
    """The runtime's ContainerConfig, as the kubelet gave it, from the verbose answer of ContainerStatus."""
    request, answer = _messages()
    with grpc.insecure_channel(f"unix://{socket}") as channel:
        call = channel.unary_unary(
            "/runtime.v1.RuntimeService/ContainerStatus", request.SerializeToString, answer.FromString
        )
        told = call(request(container_id=container, verbose=True), timeout=ASK_S)
    config: dict[str, Any] = json.loads(told.info["info"])["config"]
    return config


def _messages() -> tuple[Any, Any]:
    """The two messages, with only the fields that are needed; the rest is skipped."""
    kind = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="diff_runtime.proto", package="diff_runtime", syntax="proto3")
    request = file.message_type.add(name="Request")
    request.field.add(name="container_id", number=1, type=kind.TYPE_STRING, label=kind.LABEL_OPTIONAL)
    request.field.add(name="verbose", number=2, type=kind.TYPE_BOOL, label=kind.LABEL_OPTIONAL)
    answer = file.message_type.add(name="Answer")
    entry = answer.nested_type.add(name="InfoEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=kind.TYPE_STRING, label=kind.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=kind.TYPE_STRING, label=kind.LABEL_OPTIONAL)
    answer.field.add(
        name="info",
        number=2,
        type=kind.TYPE_MESSAGE,
        label=kind.LABEL_REPEATED,
        type_name=".diff_runtime.Answer.InfoEntry",
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    made = pool.FindFileByName(file.name)
    return tuple(message_factory.GetMessageClass(made.message_types_by_name[name]) for name in ("Request", "Answer"))  # type: ignore[return-value]  # two

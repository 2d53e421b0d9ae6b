"""One recording of Google's plugin, played with ours: what came of it, laid out flat as in `outcome`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import grpc.aio
import pytest

from fairlead.model.errors import UsageError
from fairlead.standin._gen import deviceplugin_v1beta1_pb2 as dp
from tests.recorded.gke_stage import Stage, config_of
from tests.recorded.outcome import Outcome, Says
from tests.recorded.play import Ours
from tests.recorded.stage import eventually
from tests.vectors.gke import Answer, Case

RESOURCE = "nvidia.com/gpu"
CONDITION = "XidCriticalError"
_SECONDS = re.compile(r"-\d{10}\.sock")
WAITS = ("nothing-offered", "scan-failed")


def recorded(case: Case) -> Outcome:
    outputs = case.outputs
    outcome: Outcome = {
        "register": [[one.resource_name, one.endpoint, one.version] for one in outputs.register],
        "files left": outputs.files_left_in_plugin_dir,
        "exit": outputs.exit["returncode"],
        "runs on": outputs.alive,
    }
    if outputs.options is not None:
        outcome["asked for a preference"] = bool(outputs.options.get("get_preferred_allocation_available"))
    if outputs.mps_control_stdin:
        outcome["mps control asked"] = outputs.mps_control_stdin
    if outputs.listed is not None:
        assert outputs.listed.count == len(outputs.listed.devices)
        outcome |= {f"list {one['ID']}": [one["health"], _numa(one)] for one in outputs.listed.devices}
    for index, answer in enumerate(outputs.answers):
        outcome |= _recorded_answer(f"answer {index}", answer)
    if outputs.final_node is not None:
        outcome |= _node(outputs.final_node["conditions"], outputs.final_node["annotations"] or {})
        applied = [one for one in outputs.api_requests if one.get("content_type", "").startswith("application/apply")]
        outcome["applied"] = [[one["path"], one["query"], one["body"]] for one in applied]
    return outcome


def _recorded_answer(place: str, answer: Answer) -> Outcome:
    if answer.rpc:
        containers = (answer.response or {}).get("container_responses", ())
        return {place: "error"} if answer.error is not None else {place: "ok"} | _containers(place, containers)
    assert answer.alive in {None, True}
    if answer.registered_again is not None:
        same = {f"{place} same endpoint": answer.same_endpoint} if answer.same_endpoint is not None else {}
        return {f"{place} registered again": answer.registered_again} | same
    bodies = [one["body"] for one in answer.api_requests if one.get("body", {}).get("kind") == "Event"]
    messages = [one["message"] for one in bodies]
    written = [one["body"] for one in answer.api_requests if one["path"].endswith("/status")]
    return {
        f"{place} condition": _condition(written[-1]["status"]["conditions"]) if written else None,
        f"{place} event": _event(bodies[-1]) if bodies else None,
        f"{place} health": answer.health_after,
        f"{place} lists": answer.lists_sent,
        f"{place} events": messages,
    }


def _condition(conditions: Iterable[Mapping[str, Any]]) -> list[str] | None:
    """The one that tells of XIDs."""
    own = [one for one in conditions if one["type"] == CONDITION]
    return [own[0][key] for key in ("status", "reason", "message")] if own else None


def _event(body: Mapping[str, Any]) -> dict[str, Any]:
    """All but its message. The node has no namespace, and the plugin no host."""
    about = body["involvedObject"]
    return {
        "version": body.get("apiVersion", "v1"),
        "about": [about["kind"], about["name"], about.get("namespace", ""), about["uid"]],
        "reason": body["reason"],
        "source": [body["source"]["component"], body["source"].get("host", "")],
        "type": body["type"],
    }


def _containers(place: str, containers: Iterable[Mapping[str, Any]]) -> Outcome:
    (one,) = containers
    nodes = Counter((node["host_path"], node["container_path"], node["permissions"]) for node in one["devices"])
    mounts = [(mount["host_path"], mount["container_path"], mount.get("read_only", False)) for mount in one["mounts"]]
    return {
        f"{place} nodes": sorted(nodes.items()),
        f"{place} mounts": mounts,
        f"{place} env": dict(one.get("envs", {})),
    }


def _numa(device: Mapping[str, Any]) -> list[int]:
    return [node["ID"] for node in device.get("topology", {}).get("nodes", ())]


def _node(conditions: Iterable[Mapping[str, Any]], annotations: Mapping[str, str]) -> Outcome:
    kept = [[one.get(key, "") for key in ("type", "status", "reason", "message")] for one in conditions]
    return {"conditions": sorted(kept), "annotations": dict(annotations)}


async def play(case: Case, stage: Stage, wanted: Outcome, monkeypatch: pytest.MonkeyPatch) -> Outcome:
    """`wanted`: what should come; it is waited for, and what came is told."""
    try:
        config = config_of(stage)
    except UsageError:
        return {"register": [], "files left": []}
    with monkeypatch.context() as patched, stage.machine.loaded():
        patched.delenv("NODE_NAME", raising=False)
        for name, value in stage.env().items():
            patched.setenv(name, value)
        ours = Ours(config)
        try:
            return await _Play(case, stage, ours, wanted).outcome()
        finally:
            await ours.stop()


class _Play:
    def __init__(self, case: Case, stage: Stage, ours: Ours, wanted: Outcome) -> None:
        self._case, self._stage, self._ours, self._wanted = case, stage, ours, wanted

    async def outcome(self) -> Outcome:
        end, outcome = self._stage.end, Outcome()
        if self._wanted["register"]:
            await end.until(lambda: bool(end.followed) and bool(end.followed[RESOURCE].lists))
            stream = end.followed[RESOURCE]
            assert stream.options is not None
            outcome["asked for a preference"] = stream.options.get_preferred_allocation_available
            outcome |= {
                f"list {one.ID}": [one.health, [node.ID for node in one.topology.nodes]]
                for one in stream.lists[-1].devices
            }
        else:
            assert await eventually(lambda: any(self._ours.of(kind) for kind in WAITS))
        for index, answer in enumerate(self._case.outputs.answers):
            outcome |= await self._step(f"answer {index}", answer)
        if self._case.outputs.final_node is not None:
            keys = ("conditions", "annotations")
            await eventually(
                lambda: {key: self._final()[key] for key in keys} == {key: self._wanted[key] for key in keys}
            )
            outcome |= self._final()
        outcome["register"] = [
            [one.resource_name, _SECONDS.sub("-<NOW_S>.sock", one.endpoint), one.version] for one in end.registrations
        ]
        if (asked := self._stage.mps_asked()) is not None:
            outcome["mps control asked"] = asked
        await self._ours.stop()
        return outcome | {"files left": end.sockets()}

    def _final(self) -> Outcome:
        node = self._stage.node()
        applied = [one for one in self._stage.server.requests if "apply-patch" in one.headers.get("content-type", "")]
        return _node(node["status"].get("conditions") or (), node["metadata"].get("annotations") or {}) | {
            "applied": [[one.path, one.query, one.json()] for one in applied]
        }

    def _condition(self) -> list[str] | None:
        if self._case.inputs.node is None:
            return None
        return _condition(self._stage.node()["status"].get("conditions") or ())

    async def _step(self, place: str, answer: Answer) -> Outcome:
        if answer.rpc == "Allocate":
            return await self._allocate(place, answer)
        if answer.xid is not None:
            return await self._event(place, answer)
        end = self._stage.end
        before = len(end.registrations)
        if answer.step == "own socket file removed":
            (self._stage.plugins / end.registrations[-1].endpoint).unlink()
        else:
            assert answer.step == "kubelet.sock removed and created", answer.step
            await end.restart()
        await end.until(lambda: len(end.registrations) > before)
        again = {f"{place} registered again": len(end.registrations) - before}
        if answer.same_endpoint is not None:
            again[f"{place} same endpoint"] = end.registrations[-1].endpoint == end.registrations[before - 1].endpoint
        return again

    async def _allocate(self, place: str, answer: Answer) -> Outcome:
        wanted = [dp.ContainerAllocateRequest(**one) for one in (answer.request or {})["container_requests"]]
        request = dp.AllocateRequest(container_requests=wanted)
        try:
            found = await self._stage.end.followed[RESOURCE].ask("Allocate", request, dp.AllocateResponse)
        except grpc.aio.AioRpcError as error:
            return {place: Says(f"{error.code().name}: {error.details()}")}
        (one,) = found.container_responses
        mine = {
            "devices": [_fields(node, "host_path", "container_path", "permissions") for node in one.devices],
            "mounts": [_fields(mount, "host_path", "container_path", "read_only") for mount in one.mounts],
            "envs": dict(one.envs),
        }
        return {place: "ok"} | _containers(place, [mine])

    async def _event(self, place: str, answer: Answer) -> Outcome:
        stage, backend = self._stage, self._ours.backend
        stream = stage.end.followed[RESOURCE]
        await eventually(lambda: backend._listener.listening.is_set() or not backend._faults.watching)
        before, counts = len(stream.lists), _counts(stage)
        was = self._condition()
        assert answer.xid is not None
        if answer.uuid == "-":
            stage.machine.stray(answer.xid)
        else:
            uuids = [gpu.uuid for gpu in stage.machine.driver.gpus]
            stage.machine.event(uuids.index(answer.uuid or ""), answer.event_type or 0, answer.xid)
        health, messages = self._wanted[f"{place} health"], self._wanted[f"{place} events"]
        wanted = self._wanted[f"{place} condition"] or was
        await eventually(
            lambda: (
                _health(stream.lists[-1]) == health and _new(stage, counts) == messages and self._condition() == wanted
            )
        )
        told, now = _new(stage, counts), self._condition()
        return {
            f"{place} condition": now if now != was or self._wanted[f"{place} condition"] else None,
            f"{place} event": _event(_told(stage, told[-1])) if told else None,
            f"{place} health": _health(stream.lists[-1]),
            f"{place} lists": len(stream.lists) - before,
            f"{place} events": told,
        }


def _fields(message: Any, *names: str) -> dict[str, Any]:
    return {name: getattr(message, name) for name in names}


def _health(message: dp.ListAndWatchResponse) -> dict[str, str]:
    return {one.ID: one.health for one in message.devices}


def _told(stage: Stage, message: str) -> dict[str, Any]:
    return next(one for one in stage.events() if one["message"] == message)


def _counts(stage: Stage) -> Counter[str]:
    return Counter({one["message"]: one["count"] for one in stage.events()})


def _new(stage: Stage, before: Counter[str]) -> list[str]:
    """What was told since then. One that is told again is counted, where theirs makes another."""
    return list((_counts(stage) - before).elements())

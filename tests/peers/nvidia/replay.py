"""Puts a program through a recording and answers with the same plain object that the recording holds.

Owns the order of what is done: start, wait, ask, tell events, act, stop. Must not judge: see `compare`.
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
from pathlib import Path
from typing import Any

import grpc.aio
import msgspec

from fairlead.standin._gen import deviceplugin_v1beta1_pb2 as dp
from tests.nvml import from_recording
from tests.peers.nvidia.kubelet import Followed, Kubelet, NothingHappenedError, kubelet
from tests.peers.nvidia.place import Place, placed
from tests.peers.nvidia.programs import Program
from tests.vectors import Allocation, Preference, Resource, Result, Vector, drivers
from tests.vectors.types import Error, Frames, Registration

# What these need is not built: a kubelet elsewhere, streams of our own timing.
UNPLAYABLE = {
    "197-env-KUBELET_SOCKET-empty": "the plugin does not register, and is found by its socket",
    "427-kubelet-socket-custom": "the kubelet's socket is in another directory",
    "434-kubelet-socket-empty": "the plugin does not register, and is found by its socket",
    "480-life-retry-still-failing": "nothing is to happen for 32 s",
    "481-health-two-streams": "two lists are followed at once",
    "482-health-late-stream": "the list is followed late, on purpose",
}
SETTLED_S = 10.0  # every resource has registered by then
_ENV = {"PATH": "/usr/bin", "HOME": "/"}
_ANNOTATION_KEY = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
_KLOG = re.compile(r"^([IWEF])\d{4} \S+ +\d+ (\S+:\d+)\] ?(.*)$")


async def replay(program: Program, vector: Vector) -> Result:
    driver = from_recording(drivers()[vector.driver])
    with placed(driver, program.files) as place:
        if vector.config_file is not None:
            place.write_config(vector.config_file)
        if control := vector.extra.get("mps_control"):
            place.put_mps_control(failing=control == "failing")
        async with kubelet(place.plugins) as end:
            return await _Play(program, vector, place, end).result()


class _Play:
    def __init__(self, program: Program, vector: Vector, place: Place, end: Kubelet) -> None:
        self._program = program
        self._vector = vector
        self._place = place
        self._end = end
        self._crashes = 0

    async def result(self) -> Result:
        recorded, end = self._vector.result, self._end
        end.refuses = "no" if "-kubelet-refuses" in self._vector.file else None
        if not {"kubelet-absent", "life-kubelet-comes-later"} & {self._vector.name}:
            await end.serve()
        await self._start()
        state = self._state() or "serving"
        registered = [_registration(request) for request in end.registrations]
        sockets = end.sockets()
        resources = {}
        if state == "serving":
            for name in sorted(end.followed):
                resources[name] = await self._ask(name, recorded.resources.get(name, Resource()))
        actions = [await self._act(action) for action in recorded.actions or ()]
        stopped = end.exit_code is None
        exit_code = await end.stop()
        await end.until(lambda: all(followed.ended for followed in end.followed.values()))
        log = _Log(end.log)
        return Result(
            state=state,
            exit_code=exit_code,
            stopped_by="SIGTERM" if stopped else None,
            registrations=registered,
            resources=resources,
            cdi_specs=_cdi_specs(self._place.cdi),
            effective_config=log.config(),
            sockets=sockets,
            sockets_after_stop=end.sockets() if stopped else None,
            streams_ended_with={name: it.ended or "" for name, it in end.followed.items()} if stopped else None,
            actions=actions or None,
            crashes=self._crashes,
            log_errors=log.lines("EF"),
            log_warnings=log.lines("W"),
            log_info=[],
            stdout_head=[],
        )

    async def _start(self) -> None:
        words = [*self._program.words, *self._vector.argv[1:]]
        await self._end.start(self._place.command(words), {**_ENV, **self._vector.env, **self._program.env})
        with contextlib.suppress(NothingHappenedError):  # some of the resources came: then that is the answer
            await self._end.until(lambda: bool(self._state()), SETTLED_S)
        if not self._state():
            await self._end.until(lambda: bool(self._end.followed))

    def _state(self) -> str:
        """Empty: not yet known."""
        if self._end.exit_code is not None:
            return "exited"
        for text, state in self._program.states.items():
            if text in self._end.log:
                return state
        followed = self._end.followed
        expected = self._vector.result.resources.keys() or followed.keys()
        if followed and all(name in followed and followed[name].lists for name in expected):
            return "serving"
        return ""

    async def _ask(self, name: str, recorded: Resource) -> Resource:
        followed = self._end.followed[name]
        first = followed.lists[0]
        preferred = [await self._prefer(name, one) for one in recorded.preferred or ()]
        allocated = [await self._allocate(name, one) for one in recorded.allocate or ()]
        events = [await self._tell(name, one) for one in recorded.frames_after_event or ()]
        return Resource(
            options=_options(followed.options),
            devices=_devices(first),
            preferred=preferred if recorded.preferred is not None else None,
            allocate=allocated if recorded.allocate is not None else None,
            frames_at_start=None,
            frames_after_event=events if recorded.frames_after_event is not None else None,
        )

    async def _prefer(self, name: str, one: Preference) -> Preference:
        wanted = [
            dp.ContainerPreferredAllocationRequest(
                available_deviceIDs=it.available, must_include_deviceIDs=it.must_include, allocation_size=it.size
            )
            for it in one.request
        ]
        request = dp.PreferredAllocationRequest(container_requests=wanted)
        answer = await self._call(name, "GetPreferredAllocation", request, dp.PreferredAllocationResponse)
        if isinstance(answer, Error):
            crash = None if self._end.exit_code is None else await self._recover()
            return Preference(request=one.request, error=answer, crash=crash)
        return Preference(request=one.request, response=[list(it.deviceIDs) for it in answer.container_responses])

    async def _allocate(self, name: str, one: Allocation) -> Allocation:
        wanted = [dp.ContainerAllocateRequest(devices_ids=ids) for ids in one.request]
        answer = await self._call(name, "Allocate", dp.AllocateRequest(container_requests=wanted), dp.AllocateResponse)
        if isinstance(answer, Error):
            return Allocation(request=one.request, error=answer)
        return Allocation(request=one.request, response=[_container(it) for it in answer.container_responses])

    async def _call(self, name: str, method: str, request: Any, reply: type[Any]) -> Any:
        try:
            return await self._end.followed[name].ask(method, request, reply)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                await self._end.until(lambda: self._end.exit_code is not None)
            return Error(code=error.code().name, message=error.details() or "")

    async def _recover(self) -> dict[str, Any]:
        code = self._end.exit_code
        self._crashes += 1
        for followed in self._end.followed.values():
            await followed.close()
        self._end.followed.clear()
        await self._start()
        return {"exit_code": code}

    async def _tell(self, name: str, one: Frames) -> Frames:
        """As many lists as the recording has are waited for; one too many shows in the next."""
        followed = self._end.followed[name]
        before = len(followed.lists)
        word, *numbers = one.event.split()
        if word == "waiterror":
            self._place.node.fail_wait(int(numbers[0]))
        else:
            self._place.node.event(*map(int, numbers))
        await self._end.until(lambda: len(followed.lists) >= before + len(one.frames))
        return Frames(event=one.event, frames=[_devices(it) for it in followed.lists[before:]])

    async def _act(self, recorded: dict[str, Any]) -> dict[str, Any]:
        action, end = recorded["action"], self._end
        before, ended, said = len(end.registrations), dict(end.followed), len(end.log)
        await self._perform(action, recorded)
        wanted = len(recorded["registrations"])
        if recorded["exit_code"] is not None:
            await end.until(lambda: end.exit_code is not None)
        elif action == "SIGHUP" and not wanted:
            await end.until(
                lambda: any(it in end.log[said:] for it in self._program.states) or end.exit_code is not None
            )
        await end.until(lambda: len(end.registrations) >= before + wanted and _have_lists(end, ended, wanted), 60.0)
        fresh = end.registrations[before:]
        return {
            "action": action,
            "registrations": [msgspec.to_builtins(_registration(request)) for request in fresh],
            "sockets": end.sockets(),
            "exit_code": end.exit_code,
            "devices": {it.resource_name: _devices(end.followed[it.resource_name].lists[0]) for it in fresh},
        }

    async def _perform(self, action: Any, recorded: dict[str, Any]) -> None:
        end, place = self._end, self._place
        match action:
            case "kubelet-restart" | "kubelet-start":
                await end.restart()
            case "remove-plugin-sockets":
                for name in end.sockets():
                    (end.plugins / name).unlink()
            case "touch-other-file":
                (end.plugins / "other").touch()
            case str():
                end.signal(signal.Signals[action])
            case {"inventory": _}:
                place.node.become(from_recording(recorded["driver"]))
            case {"config_file": text}:
                place.write_config(text)
            case {"remove_file": path}:
                _remove_inside(end.pid, path)
            case {"wait": _}:
                pass  # for a registration, where one follows


def _remove_inside(pid: int, path: str) -> None:
    """In the root that the process sees."""
    Path(f"/proc/{pid}/root{path}").unlink()


def _have_lists(end: Kubelet, old: dict[str, Followed], wanted: int) -> bool:
    fresh = [it for name, it in end.followed.items() if old.get(name) is not it]
    return len(fresh) >= wanted and all(it.lists for it in fresh)


class _Log:
    """klog's lines. What another program writes has none, and no config."""

    def __init__(self, text: str) -> None:
        self._entries: list[tuple[str, str, list[str]]] = []
        for line in text.splitlines():
            if found := _KLOG.match(line):
                self._entries.append((found[1], found[2], [found[3]]))
            elif self._entries:
                self._entries[-1][2].append(line)

    def lines(self, levels: str) -> list[str]:
        return [f"{level} {where}] {text[0]}" for level, where, text in self._entries if level in levels]

    def config(self) -> dict[str, Any] | None:
        """The last one that was told."""
        for _, _, text in reversed(self._entries):
            whole = "\n".join(text).strip()
            if whole.startswith("Running with config:"):
                found: dict[str, Any] = json.loads(whole.partition("\n")[2])
                return found
        return None


def _registration(request: dp.RegisterRequest) -> Registration:
    return Registration(
        version=request.version,
        endpoint=request.endpoint,
        resource_name=request.resource_name,
        options=_options(request.options),
    )


def _options(options: dp.DevicePluginOptions | None) -> dict[str, bool]:
    assert options is not None
    return {
        "pre_start_required": options.pre_start_required,
        "get_preferred_allocation_available": options.get_preferred_allocation_available,
    }


def _devices(message: dp.ListAndWatchResponse) -> list[dict[str, Any]]:
    found = [
        {
            "ID": it.ID,
            "health": it.health,
            "topology": [node.ID for node in it.topology.nodes] if it.HasField("topology") else None,
        }
        for it in message.devices
    ]
    return sorted(found, key=lambda it: str(it["ID"]))


def _container(it: dp.ContainerAllocateResponse) -> dict[str, Any]:
    return {
        "envs": dict(it.envs),
        "mounts": [
            {"container_path": one.container_path, "host_path": one.host_path, "read_only": one.read_only}
            for one in it.mounts
        ],
        "devices": [
            {"container_path": one.container_path, "host_path": one.host_path, "permissions": one.permissions}
            for one in it.devices
        ],
        "annotations": {_ANNOTATION_KEY.sub("<UUID4>", key): value for key, value in it.annotations.items()},
        "cdi_devices": [one.name for one in it.cdi_devices],
    }


def _cdi_specs(folder: Path) -> dict[str, Any]:
    return {
        f"/var/run/cdi/{path.name}": {"mode": oct(path.stat().st_mode & 0o7777), "spec": json.loads(path.read_text())}
        for path in sorted(folder.glob("*.json"))
    }

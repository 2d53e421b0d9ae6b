"""One recording of a memory-sharing plugin, played with ours: the daemon in this process, on real sockets."""

from __future__ import annotations

import asyncio
from typing import Any, TypeGuard

import pytest

from fairlead.app.daemon import Daemon
from fairlead.backends.nvidia import NvidiaBackend
from fairlead.config.load import build
from fairlead.kit.clock import SystemClock
from fairlead.model.ports import Backend
from fairlead.observe.journal import Fact, Journal
from fairlead.standin._gen import deviceplugin_v1beta1_pb2 as dp
from tests.recorded.meaning import config_of
from tests.recorded.outcome import Outcome, answer_of, health_of, list_of, node_of, registered, timeless
from tests.recorded.stage import NOBODY, NODE, PATIENCE_S, Stage, environment, eventually
from tests.vectors.sharing import Answer, Case

MARK = 62  # an XID that no recording has: when it has arrived, so has everything before it
LATE = "041-gem-annotations-late"  # of mini: what the pod needs is written while it is waited for


class Ours:
    """Our daemon, in this process."""

    def __init__(self, config: dict[str, Any]) -> None:
        clock = SystemClock()
        loaded = build(config, "recorded")
        self.daemon = Daemon(loaded, reload=lambda: loaded, clock=clock, journal=Journal(clock))
        self._task = asyncio.ensure_future(self.daemon.run())

    @property
    def backend(self) -> NvidiaBackend:
        found = self.daemon.engine.sources.live["nvidia"].backend
        assert _is_nvidia(found)
        return found

    def of(self, kind: str) -> list[Fact]:
        return [fact for fact in self.daemon.journal.tail(1000) if fact.kind == kind]

    async def stop(self) -> None:
        events = [
            source.backend._listener.events
            for source in self.daemon.engine.sources.live.values()
            if _is_nvidia(source.backend)
        ]
        self.daemon.stop()
        await asyncio.wait_for(self._task, PATIENCE_S)
        # A process would be gone. Here its thread ends its wait first: the driver is taken away next, and it holds it.
        assert await eventually(lambda: all(one._nvml is None for one in events))


async def play(
    case: Case, stage: Stage, wanted: Outcome, monkeypatch: pytest.MonkeyPatch, *more: str, asks: bool = False
) -> Outcome:
    """`wanted`: what should come; it is waited for, and what came is told. `more`: flags of ours.

    `asks`: the kubelet asks for a preference, as it does of those who have one; the recorded one asked nobody.
    """
    with environment(stage, monkeypatch), stage.machine.loaded():
        ours = Ours(config_of(case, stage, *more))
        try:
            return await _Play(case, stage, ours, wanted, asks=asks).outcome()
        finally:
            await ours.stop()


class _Play:
    def __init__(self, case: Case, stage: Stage, ours: Ours, wanted: Outcome, *, asks: bool) -> None:
        self._case = case
        self._stage = stage
        self._ours = ours
        self._wanted = wanted
        self._asks = asks
        self._quiet = False  # an event came of which nothing should come
        self._init = {
            (pod["metadata"]["namespace"], pod["metadata"]["name"], container["name"])
            for pod in case.inputs.api_objects.pods
            for container in pod["spec"].get("initContainers", ())
        }

    async def outcome(self) -> Outcome:
        stage, outputs = self._stage, self._case.outputs
        listed = await stage.listed()
        outcome: Outcome = {f"list {key}": value for key, value in list_of(listed).items()}
        options = stage.stream.options
        assert options is not None
        outcome["asked for a preference"] = options.get_preferred_allocation_available
        outcome["called before a start"] = options.pre_start_required
        await self._until("node capacity ", "node allocatable ")
        for index, answer in enumerate(outputs.answers):
            outcome |= await self._step(f"answer {index}", answer)
        await self._until("pod ", "node ")
        outcome |= self._objects()
        if self._quiet:
            await self._nothing_came()
        outcome["register"] = registered(self._case, stage.end.registrations)
        await self._ours.stop()
        outcome["files left"] = stage.end.sockets()
        for node in stage.nodes().values():
            outcome |= node_of("after", node)
        return outcome

    def _objects(self) -> Outcome:
        stage = self._stage
        outcome: Outcome = {}
        for pod, told in stage.annotations().items():
            outcome |= {f"pod {pod} {key}": value for key, value in told.items()}
        for node in stage.nodes().values():
            if self._case.outputs.final_node is not None:
                noted = node["metadata"].get("annotations") or {}
                outcome |= {f"node annotation {key}": value for key, value in noted.items()}
            outcome |= node_of("node", node)
        return outcome

    async def _until(self, *places: str) -> None:
        """Until the objects at these places are as they should be, or patience ends."""
        wanted = {key: value for key, value in self._wanted.items() if key.startswith(places) and value is not None}

        def come() -> bool:
            now = timeless(self._wanted, self._objects())
            return {key: value for key, value in now.items() if key.startswith(places)} == wanted

        await eventually(come)

    # --- Steps ------------------------------------------------------------------------------------------------------

    async def _step(self, place: str, answer: Answer) -> Outcome:
        if answer.rpc == "Allocate":
            return await self._allocate(place, answer)
        if answer.rpc == "GetPreferredAllocation":
            (wanted,) = (answer.request or {})["container_requests"]
            ask = dp.ContainerPreferredAllocationRequest(**wanted)
            request = dp.PreferredAllocationRequest(container_requests=[ask])
            found = await self._stage.ask("GetPreferredAllocation", request, dp.PreferredAllocationResponse)
            return answer_of(place, found if isinstance(found, str) else None)
        if answer.rpc == "PreStartContainer":
            start = dp.PreStartContainerRequest(**(answer.request or {}))
            return answer_of(place, await self._stage.ask("PreStartContainer", start, dp.PreStartContainerResponse))
        if answer.xid is not None:
            return await self._event(place, answer)
        if answer.step.startswith("wait"):
            return await self._noted(place)
        if answer.step == "SIGHUP":
            self._ours.daemon.reload()
            return {f"{place} registered again": len(self._stage.end.registrations) > 1}
        assert answer.step == "kubelet.sock removed and created again", answer.step
        return await self._restart(place)

    async def _allocate(self, place: str, answer: Answer) -> Outcome:
        stage = self._stage
        before = len(self._ours.of("assigned"))
        asked = asyncio.ensure_future(self._admit(answer))
        if self._case.case == LATE:
            await self._write_late(asked)
        ids, found = await asked
        if not isinstance(found, str):
            told = [_holder(fact) for fact in self._ours.of("assigned")[before:]]
            for who, taken in zip(told or [NOBODY], ids, strict=False):
                if who not in self._init:  # not shown, and what it has is given to its pod's containers
                    stage.holders[who] = taken
        return answer_of(place, found)

    async def _admit(self, answer: Answer) -> tuple[list[list[str]], Any]:
        stage = self._stage
        ids = stage.choose(answer.asked)
        if self._asks:
            ids = [await stage.prefer(len(one)) for one in ids]
        found = await stage.allocate(ids)
        if self._asks and not isinstance(found, str):
            self._agree(ids[0], found.container_responses[0].envs["NVIDIA_VISIBLE_DEVICES"])
        return ids, found

    def _agree(self, ids: list[str], visible: str) -> None:
        """What the kubelet counts is what the container has."""
        gpus = self._stage.machine.driver.gpus
        index, gpu = next((n, gpu) for n, gpu in enumerate(gpus) if visible in {gpu.uuid, str(n)})
        of = (f"fakeID---{index}---", f"{gpu.uuid}-_-", f"{index}-")
        elsewhere = [one for one in ids if not one.startswith(of) and one != gpu.uuid]
        assert not elsewhere, f"the container has GPU {index}, and the kubelet counts {elsewhere[:3]}"

    async def _write_late(self, asked: asyncio.Future[Any]) -> None:
        """What the recording has at the end is written when the question has been asked, and waits."""
        stage = self._stage
        await asyncio.sleep(0)
        await stage.ask("GetDevicePluginOptions", dp.Empty(), dp.DevicePluginOptions)  # behind it on the same line
        assert not asked.done()
        for pod in self._case.inputs.api_objects.pods:
            name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
            final = {**self._case.outputs.final_pod_annotations[name], "doslab.io/gpu-assigned": "false"}
            metadata = {**pod["metadata"], "annotations": final}
            stage.server.store.put("pods", {**pod, "metadata": metadata}, pod["metadata"]["namespace"])

    async def _event(self, place: str, answer: Answer) -> Outcome:
        stage, code = self._stage, answer.xid
        assert code is not None
        before = len(stage.stream.lists)
        await eventually(self._hears)
        if answer.uuid == "-":
            stage.machine.stray(code)
        else:
            uuids = [gpu.uuid for gpu in stage.machine.driver.gpus]
            stage.machine.xid(uuids.index(answer.uuid or ""), code)
        health = self._wanted.get(f"{place} health")
        if health is None:
            self._quiet = True
        else:
            await eventually(lambda: health_of(stage.stream.lists[-1]) == health)
        outcome: Outcome = {f"{place} lists sent": len(stage.stream.lists) - before}
        if len(stage.stream.lists) > before:
            outcome[f"{place} health"] = health_of(stage.stream.lists[-1])
        if answer.alive is not None:
            outcome[f"{place} alive"] = True
        return outcome | (await self._noted(place) if answer.node_annotations is not None else {})

    def _hears(self) -> bool:
        """The driver is listened to, or nobody wants to."""
        backend = self._ours.backend
        return backend._listener.listening.is_set() or not backend._faults.watching

    async def _noted(self, place: str) -> Outcome:
        """The node's annotations, when they are what they should be."""
        prefix = f"{place} node "

        def now() -> Outcome:
            noted = self._stage.nodes()[NODE]["metadata"].get("annotations") or {}
            return {f"{prefix}{key}": value for key, value in noted.items()}

        wanted = {key: value for key, value in self._wanted.items() if key.startswith(prefix) and value is not None}
        await eventually(lambda: now() == wanted)
        return now()

    async def _restart(self, place: str) -> Outcome:
        end = self._stage.end
        before, old = len(end.registrations), self._stage.stream
        await end.restart()
        await end.until(lambda: len(end.registrations) > before and self._stage.stream is not old)
        listed = await self._stage.listed()
        return {f"{place} registered again": True} | {f"{place} list {k}": v for k, v in list_of(listed).items()}

    async def _nothing_came(self) -> None:
        """A last event, on a healthy card that is heard, has come: whatever was told before has come too."""
        stage, ours = self._stage, self._ours
        if not ours.backend._faults.watching:
            assert not ours.backend._listener.listening.is_set(), "nobody wants to know, and somebody listens"
            return
        before = stage.stream.lists[-1]
        ill = {fact.keys["device"] for fact in ours.of("unhealthy")}
        heard = set(ours.backend._listener.events._uuids.values())
        index, gpu = next(
            (index, gpu)
            for index, gpu in enumerate(stage.machine.driver.gpus)
            if gpu.uuid in heard and gpu.uuid not in ill
        )
        stage.machine.xid(index, MARK)
        assert await eventually(lambda: any(fact.keys["device"] == gpu.uuid for fact in ours.of("unhealthy")))
        told = [fact.keys for fact in ours.of("unhealthy") if fact.keys["device"] not in ill]
        assert [keys["device"] for keys in told] == [gpu.uuid]
        assert f"xid-{MARK}" in told[0]["cause"]
        await eventually(lambda: stage.stream.lists[-1] is not before)


def _is_nvidia(backend: Backend) -> TypeGuard[NvidiaBackend]:
    return isinstance(backend, NvidiaBackend)


def _holder(fact: Fact) -> tuple[str, str, str]:
    namespace, _, name = str(fact.keys["pod"]).partition("/")
    return namespace, name, str(fact.keys["container"])

"""The five calls of the plugin in `broken.py`: right, but for the one thing that FAULT names.

Owns answers. Registration, sockets and signals are not known here.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.unknown_fields import UnknownFieldSet
from tests.unit.standin.conformance.odd import Anything

from fairlead.standin._gen import deviceplugin_v1beta1_pb2 as dp

FAULT = os.environ.get("FAULT", "")


def crash(why: str) -> None:
    print(f"panic: {why}", flush=True)
    os._exit(2)


async def refuse(context: Any, why: str) -> None:
    await context.abort(grpc.StatusCode.INVALID_ARGUMENT, why)


SICK = Path(os.environ.get("DP_DIR", ".")) / ".sick"  # while it is there a device is unhealthy
LATE_S = 1.5  # something that happens without a cause, and not at once


class Calls:
    def __init__(self, name: str = "x") -> None:
        self.name = name
        self.began_s = time.monotonic()
        self.last_s = 0.0
        self.streams = 0
        self.opened = 0
        self.seen = 0  # streams of the present server
        self.generation = 0
        self.allocated = 0
        self.allocating = 0
        self.used: set[str] = set()
        self.prepared: set[str] = set()
        self.current: list[str] = []
        self.deaf = FAULT == "deaf"
        self.leaked: list[int] = []
        self.ever_sick = False

    def options(self) -> dp.DevicePluginOptions:
        return dp.DevicePluginOptions(pre_start_required=True, get_preferred_allocation_available=True)

    def devices(self) -> list[dp.Device]:
        ids = ["Dev-1", "Dev-2", "Dev-3", "Dev-4"]
        if self.name != "x" and FAULT != "shared-ids":
            ids = [f"{self.name}-{i}" for i in ids]
        if FAULT == "control-ids":
            ids = [chr(number) for number in range(4)]
        if FAULT == "drifting-ids":
            ids[3] = f"Dev-{4 + int((time.monotonic() - self.began_s) / LATE_S) % 2}"
        if FAULT == "pid-ids":
            ids = [f"{i}-{os.getpid()}" for i in ids]
        if FAULT == "generation-ids":
            ids = [f"{i}-{self.generation}" for i in ids]
        found = [dp.Device(ID=i, health="Healthy") for i in ids]
        if SICK.exists() and FAULT != "blind":
            found[0].health = "Unhealthy"
            self.ever_sick = True
            if FAULT == "drops-sick":
                del found[0]
        if FAULT == "never-mends" and self.ever_sick:
            found[0].health = "Unhealthy"
        found.append(dp.Device(ID=f"{self.name}-sick" if self.name != "x" else "Dev-sick", health="Unhealthy"))
        if FAULT == "long-id":
            found.append(dp.Device(ID="x" * 70, health="Healthy"))
        if FAULT == "twice":
            found.append(dp.Device(ID="Dev-1", health="Healthy"))
        if FAULT == "health-word":
            found.append(dp.Device(ID="Dev-9", health="healthy"))
        if FAULT == "oversize":
            found += [dp.Device(ID=f"{n:060}", health="Healthy") for n in range(60_000)]
        if FAULT == "shuffle":
            turn = self.opened % len(found)
            found = found[turn:] + found[:turn]
        return found

    def healthy(self) -> list[str]:
        return [device.ID for device in self.devices() if device.health == "Healthy"]

    async def get_options(self, _: dp.Empty, context: Any) -> dp.DevicePluginOptions:
        if FAULT == "options-fail":
            await refuse(context, "no options today")
        if FAULT == "metadata" and any(len(str(value)) > 1000 for _, value in context.invocation_metadata()):
            crash("metadata")
        return self.options()

    async def list_and_watch(self, _: dp.Empty, context: Any) -> AsyncIterator[dp.ListAndWatchResponse]:
        self.streams += 1
        self.seen += 1
        self.opened += 1
        if FAULT == "leak":
            self.leaked.append(os.open("/dev/null", os.O_RDONLY))
        try:
            if FAULT == "one-stream" and self.streams > 1:
                await asyncio.Event().wait()
            if FAULT == "partial-first":
                yield dp.ListAndWatchResponse(devices=self.devices()[:1])
            told = [] if FAULT == "second-empty" and self.streams > 1 else self.devices()
            yield dp.ListAndWatchResponse(devices=told)
            if FAULT == "ends-stream":
                await asyncio.sleep(0.1)
                return
            began_s, mine = time.monotonic(), self.opened
            while True:
                await asyncio.sleep(0.05)
                if FAULT == "first-stream-only" and mine > 1:
                    continue
                if FAULT == "one-stream-told" and mine < self.opened:
                    continue
                again = FAULT == "late-repeat" and time.monotonic() - began_s > LATE_S
                if FAULT == "repeats" or again or (self.devices() != told and FAULT != "shuffle"):
                    told, began_s = self.devices(), time.monotonic()
                    yield dp.ListAndWatchResponse(devices=told)
        finally:
            self.streams -= 1
            if FAULT == "ends-with-any-stream":
                os._exit(1)

    async def allocate(self, request: dp.AllocateRequest, context: Any) -> dp.AllocateResponse:
        if FAULT == "unknown-fields" and len(UnknownFieldSet(request)):
            await refuse(context, "what is this field?")
        if not request.container_requests:
            if FAULT == "empty":
                crash("index out of range")
            if FAULT == "lenient":
                return dp.AllocateResponse()
            await refuse(context, "for whom?")
        answers = [await self.container(list(ask.devices_ids), context) for ask in request.container_requests]
        if FAULT == "one-response":
            answers = answers[:1]
        if FAULT == "no-response":
            answers = []
        return dp.AllocateResponse(container_responses=answers)

    async def container(self, ids: list[str], context: Any) -> dp.ContainerAllocateResponse:
        self.allocated += 1
        if FAULT in {"deaf-after-allocate", "crash-on-cancel"}:
            # The more there are the longer they take: when one is answered the others are still in hand.
            self.allocating += 1
            try:
                await asyncio.sleep(0.1 + 0.05 * self.allocating)
            except asyncio.CancelledError:
                if FAULT == "crash-on-cancel":
                    crash("cancelled")
                self.deaf = True
                raise
            finally:
                self.allocating -= 1
        if FAULT == "huge" and (len(ids) > 1000 or any(len(i) > 1 << 20 for i in ids)):
            crash("out of memory")
        if len(set(ids)) < len(ids) and FAULT == "crash-on-twice":
            crash("already there")
        known = set(self.healthy())
        if FAULT == "sick":
            known.add("Dev-sick")
        unknown = [i for i in ids if i not in known]
        if FAULT == "half-unknown" and len(unknown) < len(ids):
            unknown = []
        if FAULT == "paths":
            unknown = [i for i in unknown if not i.startswith("../")]
        if FAULT == "unknown":
            unknown = []
        if unknown or not ids or FAULT == "refuses-all":
            await refuse(context, "not mine")
        hurried = time.monotonic() - self.last_s < 0.5
        self.last_s = time.monotonic()
        if FAULT == "one-at-a-time" and hurried:
            await refuse(context, "busy")
        if FAULT == "no-allocate" or (FAULT == "only-one" and len(ids) > 1):
            await refuse(context, "cannot")
        if FAULT == "in-use" and self.used & set(ids):
            await refuse(context, "in use")
        if FAULT == "runs-out" and self.allocated > 100:
            await refuse(context, "too many open files")
        if FAULT == "slow":
            await asyncio.sleep(2.0)
        self.used |= set(ids)
        self.current = ids
        if FAULT == "mixes-up":
            await asyncio.sleep(0.02)
            ids = self.current
        if FAULT == "gives-nothing":
            return dp.ContainerAllocateResponse()
        if FAULT == "says-nothing":
            return dp.ContainerAllocateResponse(envs={"NVIDIA_VISIBLE_DEVICES": "no-gpu-has-1MiB-to-run"})
        envs = {"IDS": ",".join(ids)}
        if FAULT == "counts":
            envs["CALL"] = str(self.allocated)
        if FAULT == "first-counts":
            envs["MAIN"] = ids[0]
        host = "dev/null" if FAULT == "relative" else "/dev/null"
        nodes = [dp.DeviceSpec(container_path=f"/dev/{i}", host_path=host, permissions="rw") for i in ids]
        if FAULT == "any-node-order" and self.allocated % 2:
            nodes.reverse()
            nodes.append(dp.DeviceSpec(container_path="/dev/all", host_path=host, permissions="rw"))
        elif FAULT == "any-node-order":
            nodes.insert(0, dp.DeviceSpec(container_path="/dev/all", host_path=host, permissions="rw"))
        return dp.ContainerAllocateResponse(envs=envs, devices=nodes)

    async def prefer(self, request: dp.PreferredAllocationRequest, context: Any) -> dp.PreferredAllocationResponse:
        answers = [await self.choose(ask, context) for ask in request.container_requests]
        if FAULT == "prefers-reversed":
            answers.reverse()
        responses = [dp.ContainerPreferredAllocationResponse(deviceIDs=ids) for ids in answers]
        return dp.PreferredAllocationResponse(container_responses=responses)

    async def choose(self, ask: dp.ContainerPreferredAllocationRequest, context: Any) -> list[str]:
        offered, must, size = list(ask.available_deviceIDs), list(ask.must_include_deviceIDs), ask.allocation_size
        if size > len(offered) and FAULT == "prefers-crash":
            crash("slice bounds out of range")
        if FAULT == "prefers-error" and len(must) == 2:
            await refuse(context, "links are not known")
        if FAULT == "prefers-stray":
            offered = [*self.healthy(), *offered]
        if FAULT == "prefers-forgets":
            must = []
        rest = [i for i in offered if i not in must]
        chosen = must + (rest if FAULT == "prefers-order" else sorted(set(rest)))
        if FAULT == "prefers-stray":
            chosen = must + sorted(set(self.healthy()) - set(must), reverse=True)
        return chosen[: size - 1 if FAULT == "prefers-few" and size > 2 else max(0, size)]

    async def prepare(self, request: dp.PreStartContainerRequest, context: Any) -> dp.PreStartContainerResponse:
        if FAULT == "prepares-once" and self.prepared & set(request.devices_ids):
            await refuse(context, "prepared already")
        self.prepared |= set(request.devices_ids)
        return dp.PreStartContainerResponse()

    def handlers(self) -> list[Any]:
        def unary(answer: Any, request: Any, reply: Any) -> Any:
            return grpc.unary_unary_rpc_method_handler(
                answer, request_deserializer=_reader(request), response_serializer=reply.SerializeToString
            )

        calls = {
            "GetDevicePluginOptions": unary(self.get_options, dp.Empty, dp.DevicePluginOptions),
            "Allocate": unary(self.allocate, dp.AllocateRequest, dp.AllocateResponse),
            "GetPreferredAllocation": unary(self.prefer, dp.PreferredAllocationRequest, dp.PreferredAllocationResponse),
            "PreStartContainer": unary(self.prepare, dp.PreStartContainerRequest, dp.PreStartContainerResponse),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(
                self.list_and_watch,
                request_deserializer=dp.Empty.FromString,
                response_serializer=dp.ListAndWatchResponse.SerializeToString,
            ),
        }
        found: list[Any] = [grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", calls)]
        return [*found, Anything()] if FAULT == "any-method" else found


def _reader(kind: Any) -> Any:
    def read(data: bytes) -> Any:
        try:
            return kind.FromString(data)
        except Exception:
            if FAULT == "lenient":
                return kind()
            raise

    return read

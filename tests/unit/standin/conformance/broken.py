# ruff: noqa: ASYNC240 - a program of its own, with a directory of its own: these calls do not block
"""A device plugin that does everything right, but for the one thing that FAULT names. Run as a program.

Good, it passes every scenario; each fault is a mistake that real plugins make.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from google.protobuf.unknown_fields import UnknownFieldSet
from tests.unit.standin.conformance.odd import Anything, Doorman

from fairlead.standin._gen import deviceplugin_v1beta1_pb2 as dp

FAULT = os.environ.get("FAULT", "")
DIR = Path(os.environ["DP_DIR"])
KUBELET = DIR / "kubelet.sock"
RESOURCE = "example.com/x" if FAULT != "name" else "Example.com/x"
STAYS = {"keeps-socket", "litter"}
POLL_S = 0.02
STREAM_S = 1.0  # registered, and no stream so long: register again


class Rebind(Exception):
    """The kubelet has lost us: serve afresh."""


def crash(why: str) -> None:
    print(f"panic: {why}", flush=True)
    os._exit(2)


async def refuse(context: Any, why: str) -> None:
    await context.abort(grpc.StatusCode.INVALID_ARGUMENT, why)


class Plugin:
    def __init__(self) -> None:
        self.streams = 0
        self.opened = 0
        self.seen = 0  # streams of the present server
        self.generation = 0
        self.allocated = 0
        self.used: set[str] = set()
        self.prepared: set[str] = set()
        self.current: list[str] = []
        self.changes = 0
        self.deaf = FAULT == "deaf"
        self.registered_once = False
        self.leaked: list[int] = []
        self.stubborn = False

    # The five calls.

    def options(self) -> dp.DevicePluginOptions:
        return dp.DevicePluginOptions(pre_start_required=True, get_preferred_allocation_available=True)

    def devices(self) -> list[dp.Device]:
        ids = ["Dev-1", "Dev-2", "Dev-3", "Dev-4"]
        if FAULT == "pid-ids":
            ids = [f"{i}-{os.getpid()}" for i in ids]
        if FAULT == "generation-ids":
            ids = [f"{i}-{self.generation}" for i in ids]
        found = [dp.Device(ID=i, health="Healthy") for i in ids]
        found.append(dp.Device(ID="Dev-sick", health="Unhealthy"))
        if FAULT == "long-id":
            found.append(dp.Device(ID="x" * 70, health="Healthy"))
        if FAULT == "twice":
            found.append(dp.Device(ID="Dev-1", health="Healthy"))
        if FAULT == "health-word":
            found.append(dp.Device(ID="Dev-9", health="healthy"))
        if FAULT == "oversize":
            found += [dp.Device(ID=f"{n:060}", health="Healthy") for n in range(60_000)]
        if FAULT == "shuffle":
            random.shuffle(found)
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
            yield dp.ListAndWatchResponse(
                devices=[] if FAULT == "second-empty" and self.streams > 1 else self.devices()
            )
            if FAULT == "ends-stream":
                await asyncio.sleep(0.1)
                return
            while True:
                await asyncio.sleep(0.1 if FAULT == "repeats" else 3600)
                yield dp.ListAndWatchResponse(devices=self.devices())
        finally:
            self.streams -= 1

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
            try:
                await asyncio.sleep(0.2)
            except asyncio.CancelledError:
                if FAULT == "crash-on-cancel":
                    crash("cancelled")
                self.deaf = True
                raise
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
        if unknown or not ids:
            await refuse(context, "not mine")
        if FAULT == "no-allocate" or (FAULT == "only-one" and len(ids) > 1):
            await refuse(context, "cannot")
        if FAULT == "in-use" and self.used & set(ids):
            await refuse(context, "in use")
        if FAULT == "runs-out" and self.allocated > 100:
            await refuse(context, "too many open files")
        if FAULT == "slow":
            await asyncio.sleep(1.2)
        self.used |= set(ids)
        self.current = ids
        if FAULT == "mixes-up":
            await asyncio.sleep(0.02)
            ids = self.current
        envs = {"IDS": ",".join(ids)}
        if FAULT == "counts":
            envs["CALL"] = str(self.allocated)
        if FAULT == "first-counts":
            envs["MAIN"] = ids[0]
        host = "dev/null" if FAULT == "relative" else "/dev/null"
        nodes = [dp.DeviceSpec(container_path=f"/dev/{i}", host_path=host, permissions="rw") for i in ids]
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

    # Its life.

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

    async def run(self) -> None:
        if FAULT == "exits":
            sys.exit(1)
        if FAULT == "refuses-stale" and any(DIR.glob("x*.sock")):
            sys.exit("the socket is there already")
        if FAULT not in STAYS:
            for stale in DIR.glob("*.sock" if FAULT == "sweeps" else "x*.sock"):
                if stale != KUBELET:
                    stale.unlink()
        if FAULT in {"silent", "waits-forever"} and (FAULT == "silent" or not KUBELET.exists()):
            await asyncio.Event().wait()
        while True:
            try:
                await self.serve()
            except Rebind:
                self.generation += 1

    async def serve(self) -> None:
        name = f"x{time.monotonic_ns() if FAULT == 'litter' else self.generation}.sock"
        path = DIR / name
        early = asyncio.create_task(self.register(name)) if FAULT == "register-first" else None
        if early is not None:
            await asyncio.sleep(0.3)
        server = await self.bind(path)
        self.seen = 0
        kubelet = _birth(KUBELET)
        try:
            blind = FAULT == "start-blind" and not self.registered_once
            if blind:
                await asyncio.sleep(0.3)
            for attempt in itertools.count():
                try:
                    await (early or self.register(name))
                    break
                except grpc.aio.AioRpcError as error:
                    await self.failed(error, attempt)
                if not blind and (not path.exists() or _birth(KUBELET) != kubelet):
                    raise Rebind
            self.registered_once = True
            for _ in range(4 if FAULT == "registers-often" else 0):
                await self.register(name)
            await self.watch(path, kubelet)
        finally:
            await server.stop(None)
            if FAULT not in STAYS:
                path.unlink(missing_ok=True)

    async def bind(self, path: Path) -> Any:
        path.unlink(missing_ok=True)
        server = grpc.aio.server(options=[("grpc.max_send_message_length", -1)])
        server.add_generic_rpc_handlers(tuple(self.handlers()))
        # gRPC removes the file it bound; what is to stay, or to be guarded, gets another name.
        inner = path.with_name(f".{path.name}.inner") if FAULT in {"few-connections", *STAYS} else path
        server.add_insecure_port(f"unix:{inner}")
        await server.start()
        if FAULT == "few-connections":
            self.door = await asyncio.start_unix_server(Doorman(inner).meet, path)
        if FAULT in STAYS:
            os.link(inner, path)
        if FAULT == "open-socket":
            path.chmod(0o777)
        return server

    async def register(self, name: str) -> None:
        if FAULT == "deaf-after-allocate" and self.deaf:
            await asyncio.Event().wait()
        options = dp.DevicePluginOptions() if FAULT == "options-differ" else self.options()
        request = dp.RegisterRequest(
            version="v1" if FAULT == "version" else "v1beta1",
            endpoint=f"./{name}" if FAULT == "endpoint" else name,
            resource_name=RESOURCE,
            options=options,
        )
        async with grpc.aio.insecure_channel(
            f"unix:{KUBELET}", options=[("grpc.use_local_subchannel_pool", 1)]
        ) as channel:
            call: Any = channel.unary_unary(
                "/v1beta1.Registration/Register",
                request_serializer=dp.RegisterRequest.SerializeToString,
                response_deserializer=dp.Empty.FromString,
            )
            await call(request, timeout=0.1 if FAULT == "hurried" else 15)

    async def failed(self, error: grpc.aio.AioRpcError, attempt: int) -> None:
        """What to do about a Register that failed: wait a little, or what the fault says."""
        text = error.details() or ""
        lost = error.code() is grpc.StatusCode.UNAVAILABLE
        gives_up = {
            "gives-up": "not now" in text,
            "gives-up-version": "version" in text,
            "gives-up-unavailable": lost and KUBELET.exists(),
        }
        if gives_up.get(FAULT):
            await asyncio.Event().wait()
        if FAULT == "hangs-without-kubelet" and lost:
            self.stubborn = True
        if FAULT == "ends-when-refused":
            sys.exit("refused")
        await asyncio.sleep(0 if FAULT in {"no-pause", "hurried"} else min(0.4, 0.05 * 2**attempt))

    async def watch(self, path: Path, kubelet: object) -> None:
        """Until one of three signs says that the kubelet has lost us."""
        began = time.monotonic()
        while True:
            await asyncio.sleep(POLL_S)
            if self.deaf:
                continue
            changed = _birth(KUBELET) != kubelet
            if FAULT == "by-absence":
                changed = not KUBELET.exists()
            if FAULT == "streams-only":
                changed = False
            if FAULT == "first-change-only" and changed:
                self.changes += 1
                self.deaf = self.changes >= 2
                if self.deaf:
                    continue
            if FAULT in {"no-stream-watch", "by-absence"}:
                ended = False
            elif FAULT in {"patient", "streams-only"}:
                ended = self.seen > 0 and self.streams == 0
            else:
                ended = self.streams == 0 and (self.seen > 0 or time.monotonic() - began > STREAM_S)
            if ended and FAULT == "ends-with-stream":
                sys.exit("the stream ended")
            if ended and FAULT == "first-change-only":
                ended = False
            own_gone = not path.exists() and FAULT not in {
                "no-own-watch",
                "streams-only",
                "by-absence",
                "first-change-only",
            }
            if changed or own_gone or ended:
                raise Rebind


def _birth(path: Path) -> object:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_ctime_ns


def _reader(kind: Any) -> Any:
    def read(data: bytes) -> Any:
        try:
            return kind.FromString(data)
        except Exception:
            if FAULT == "lenient":
                return kind()
            raise

    return read


async def main() -> int:
    plugin = Plugin()
    life = asyncio.create_task(plugin.run())
    loop = asyncio.get_running_loop()

    def stop() -> None:
        if not plugin.stubborn:
            life.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        ignored = {"ignores-term": signal.SIGTERM, "ignores-int": signal.SIGINT}.get(FAULT)
        loop.add_signal_handler(number, (lambda: None) if number is ignored else stop)
    try:
        await life
    except asyncio.CancelledError:
        return 1 if FAULT == "bad-code" else 0
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))

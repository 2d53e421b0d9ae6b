# ruff: noqa: ASYNC240 - a program of its own, with a directory of its own: these calls do not block
"""A device plugin that does everything right, but for the one thing that FAULT names. Run as a program.

Good, it passes every scenario; each fault is a mistake that real plugins make.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from tests.unit.standin.conformance.calls import FAULT, LATE_S, Calls, crash
from tests.unit.standin.conformance.odd import Doorman

from fairlead.standin._gen import deviceplugin_v1beta1_pb2 as dp

DIR = Path(os.environ["DP_DIR"])
KUBELET = DIR / "kubelet.sock"
DOMAIN = "example.com" if FAULT != "name" else "Example.com"
SEVERAL = {"", "forgets-refused", "all-or-none", "shared-ids"}  # have two resources
STAYS = {"keeps-socket", "litter"}
POLL_S = 0.02
STREAM_S = 6.0  # registered, and no stream so long: register again
WAITS_S = 2.0  # what two mistakes wait for, so that the other side is sure to be first, however busy the machine


class Rebind(Exception):
    """The kubelet has lost us: serve afresh."""


class Plugin(Calls):
    """A plugin's life: serve, register, watch for signs that the kubelet has lost us, and again."""

    def __init__(self, name: str = "x") -> None:
        super().__init__(name)
        self.changes = 0
        self.registered = asyncio.Event()
        self.stubborn = False

    async def run(self) -> None:
        if FAULT == "exits":
            sys.exit(1)
        if FAULT == "refuses-stale" and any(DIR.glob("x*.sock")):
            sys.exit("the socket is there already")
        if FAULT == "second-in-name" and (DIR / f"x{int(time.time())}.sock").exists():
            crash("bind: address already in use")
        if FAULT not in STAYS:
            for stale in DIR.glob("*.sock" if FAULT == "sweeps" else f"{self.name}*.sock"):
                if stale != KUBELET:
                    stale.unlink()
        if FAULT in {"silent", "waits-forever"} and (FAULT == "silent" or not KUBELET.exists()):
            await asyncio.Event().wait()
        while True:
            try:
                await self.serve()
            except Rebind:
                self.generation += 1
                await asyncio.sleep(WAITS_S if FAULT == "late" else 0)

    async def serve(self) -> None:
        name = f"{self.name}{self.generation}.sock"
        if FAULT == "litter":
            name = f"x{time.monotonic_ns()}.sock"
        if FAULT == "second-in-name":
            name = f"x{int(time.time())}.sock"
        path = DIR / name
        early = asyncio.create_task(self.register(name)) if FAULT == "register-first" else None
        if early is not None:
            await asyncio.wait({early}, timeout=WAITS_S)
        server = await self.bind(path)
        self.seen = 0
        kubelet = _birth(KUBELET)
        try:
            blind = FAULT == "start-blind" and not self.registered.is_set()
            if blind:
                await self.stare(kubelet)
            for attempt in itertools.count():
                try:
                    await (early or self.register(name))
                    break
                except grpc.aio.AioRpcError as error:
                    early = None
                    await self.failed(error, attempt)
                if not blind and (not path.exists() or _birth(KUBELET) != kubelet):
                    raise Rebind
            self.registered.set()
            for _ in range(4 if FAULT == "registers-often" else 0):
                await self.register(name)
            await self.watch(path, kubelet)
        finally:
            await server.stop(None)
            if FAULT not in STAYS:
                path.unlink(missing_ok=True)

    async def stare(self, kubelet: object) -> None:
        """Until another kubelet has come, and nothing is made of it."""
        for _ in range(int(WAITS_S / POLL_S)):
            if _birth(KUBELET) != kubelet:
                break
            await asyncio.sleep(POLL_S)

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
            resource_name=f"{DOMAIN}/{self.name}",
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
            "forgets-refused": "not this one" in text,
            "gives-up-version": "version" in text,
            "gives-up-unavailable": lost and KUBELET.exists(),
        }
        if gives_up.get(FAULT):
            await asyncio.Event().wait()
        if FAULT == "hangs-without-kubelet" and lost:
            self.stubborn = True
        if FAULT == "all-or-none" and "not this one" in text:
            sys.exit("one was refused")
        if FAULT == "ends-when-refused":
            sys.exit("refused")
        await asyncio.sleep(0 if FAULT in {"no-pause", "hurried"} else min(0.4, 0.05 * 2**attempt))

    async def watch(self, path: Path, kubelet: object) -> None:
        """Until one of three signs says that the kubelet has lost us."""
        began = time.monotonic()
        while True:
            await asyncio.sleep(POLL_S)
            if FAULT == "crash-after-restart" and self.generation and time.monotonic() - began > LATE_S:
                crash("send on closed channel")
            if FAULT == "raises-after-restart" and self.generation and time.monotonic() - began > LATE_S:
                raise KeyError("Dev-1")
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


async def main() -> int:
    plugin = Plugin()
    lives = [asyncio.create_task(plugin.run())]
    if FAULT in SEVERAL:
        lives.append(asyncio.create_task(second(plugin)))
    life = asyncio.gather(*lives)
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
        await asyncio.gather(*lives, return_exceptions=True)
        return 1 if FAULT == "bad-code" else 0
    return 0


async def second(first: Plugin) -> None:
    """The other resource; it comes after the first one, so that that is the one to be looked at."""
    await first.registered.wait()
    await Plugin("y").run()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))

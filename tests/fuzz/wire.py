"""Fuzzes both ends of the wire: damaged conversations and random frames, fed in random pieces.

    python -m tests.fuzz.wire --cases 200000 [--seed N]     the long form
    python -m tests.fuzz.wire --seed N --only I             one case again, with its traceback

A case fails when an exception escapes, a bound is broken, output is not HTTP/2, a call or a task stays, or it
hangs. The same seed gives the same cases on every machine.
"""

from __future__ import annotations

import argparse
import asyncio
import faulthandler
import gc
import random
import time
import weakref
from typing import TYPE_CHECKING

from tests.fuzz.conversations import client_bytes, damage, random_frames, server_bytes

from fairlead.wire import deviceplugin as dp
from fairlead.wire import frames as f
from fairlead.wire.grpc import request_block
from fairlead.wire.limits import Limits
from fairlead.wire.protocol import Http2Protocol
from fairlead.wire.rpc_client import ClientProtocol
from fairlead.wire.rpc_server import Server
from fairlead.wire.server_protocol import ServerProtocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from fairlead.wire.rpc import Call

# Small enough that every limit is met many times in a run.
LIMITS = Limits(
    message_bytes=3000,
    request_bytes=6000,
    queue_bytes=100_000,
    concurrent_streams=6,
    header_list_bytes=2000,
    header_block_bytes=3000,
    continuation_frames=4,
    stream_window_bytes=20_000,
    connection_window_bytes=70_000,
    resets=5,
    idle_frames=12,
)
HANG_S = 20.0
SETTLE_EVERY = 50


class BrokenPromiseError(AssertionError):
    """The wire broke one of the promises this harness checks."""


def say(line: str) -> None:
    print(line, flush=True)


def promise(kept: bool, text: str) -> None:
    if not kept:
        raise BrokenPromiseError(text)


class Sink(asyncio.Transport):
    """A transport that remembers what was written and refuses nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.over = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.over

    def close(self) -> None:
        self.over = True

    def abort(self) -> None:
        self.over = True

    def write_eof(self) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


def allocate(request: dp.AllocateRequest, _call: Call) -> dp.AllocateResponse:
    return dp.AllocateResponse(
        tuple(dp.ContainerAllocateResponse(envs={"IDS": ",".join(c.device_ids)}) for c in request.container_requests)
    )


async def prepare(_request: dp.PreStartContainerRequest, _call: Call) -> dp.PreStartContainerResponse:
    await asyncio.sleep(3600)
    return dp.PreStartContainerResponse()


async def watch(_request: dp.Empty, _call: Call) -> AsyncIterator[dp.ListAndWatchResponse]:
    for _ in range(3):
        yield dp.ListAndWatchResponse((dp.Device("x" * 30_000, dp.HEALTHY),))
    await asyncio.sleep(3600)


class Fuzzer:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.server = Server(
            {dp.ALLOCATE: allocate, dp.PRE_START_CONTAINER: prepare, dp.LIST_AND_WATCH: watch},
            limits=LIMITS,
        )
        self.protocols: weakref.WeakSet[Http2Protocol] = weakref.WeakSet()
        self.failed_connections = 0

    async def run_case(self, number: int) -> None:
        rng = random.Random(f"{self.seed}:{number}")
        serving = rng.random() < 0.6
        if rng.random() < 0.2:
            data = (f.PREFACE if serving else b"") + f.settings({}) + random_frames(rng)
        else:
            data = damage(rng, client_bytes(rng) if serving else server_bytes(rng))
        protocol: Http2Protocol = ServerProtocol(self.server) if serving else ClientProtocol(LIMITS)
        self.protocols.add(protocol)
        sink = Sink()
        protocol.connection_made(sink)
        if isinstance(protocol, ClientProtocol):
            self._call(protocol, rng)
        await self._feed(protocol, sink, data, rng)
        self._check(protocol, sink)
        protocol.connection_lost(None)
        promise(not protocol.calls, "a call outlived its connection")  # type: ignore[attr-defined]  # both kinds have it
        if isinstance(protocol, ClientProtocol) and protocol.ready.done():
            protocol.ready.exception()  # seen, so that asyncio does not complain
        self.failed_connections += protocol.http.failed

    def _call(self, protocol: ClientProtocol, rng: random.Random) -> None:
        for _ in range(rng.randint(0, 3)):
            opening = protocol.open(request_block("/v1beta1.DevicePlugin/Allocate", "localhost", None), b"x" * 50)
            try:
                opening.send(None)
            except StopIteration:
                continue
            opening.close()

    async def _feed(self, protocol: Http2Protocol, sink: Sink, data: bytes, rng: random.Random) -> None:
        pieces = rng.choice((1, 1, 2, 5))
        cuts = sorted(rng.randrange(len(data) + 1) for _ in range(pieces - 1))
        for start, stop in zip([0, *cuts], [*cuts, len(data)], strict=True):
            if sink.over:
                return
            protocol.data_received(data[start:stop])
            if isinstance(protocol, ServerProtocol) and protocol.calls and rng.random() < 0.3:
                await asyncio.sleep(0)

    def _check(self, protocol: Http2Protocol, sink: Sink) -> None:
        http = protocol.http
        promise(len(http.streams) <= max(LIMITS.concurrent_streams, 8), "more streams than the limit")
        promise(len(http._rest) <= f.DEFAULT_FRAME_BYTES + f.HEADER_BYTES, "more than a frame is held")
        queued = sum(stream.queued_bytes for stream in http.streams.values())
        promise(queued == http.sending.queued_bytes, "the queue's size is wrong")
        promise(queued <= LIMITS.queue_bytes, "the queue is over its limit")
        if isinstance(protocol, ServerProtocol):
            promise(0 <= protocol.request_bytes <= LIMITS.request_bytes, "requests are over their limit")
        self._check_output(protocol, bytes(sink.written))

    def _check_output(self, protocol: Http2Protocol, out: bytes) -> None:
        if not protocol.http.server:
            promise(out.startswith(f.PREFACE), "the client did not begin with the preface")
            out = out[len(f.PREFACE) :]
        at, kinds, ended = 0, set(), set()
        while at < len(out):
            high, low, kind, flags, stream = f.FRAME_HEADER.unpack_from(out, at)
            at += f.HEADER_BYTES + (high << 8 | low)
            kinds.add(kind)
            promise(kind <= f.CONTINUATION, "an unknown frame was sent")
            promise(stream not in ended or kind in {f.RST_STREAM, f.CONTINUATION}, "a frame after the stream's end")
            if kind in {f.DATA, f.HEADERS} and flags & f.END_STREAM:
                ended.add(stream)
        promise(at == len(out), "the last frame sent is incomplete")
        # A client whose server said goodbye has closed already when it finds the fault behind the goodbye.
        gone = not protocol.http.server and protocol.http.peer_going_away
        promise(not protocol.http.failed or gone or f.GOAWAY in kinds, "a connection failed without GOAWAY")

    async def settle(self) -> None:
        for _ in range(20):
            if not self.server.tasks:
                break
            await asyncio.sleep(0)
        promise(not self.server.tasks, "a task outlived its call")
        promise(not self.server.protocols, "the server still counts a connection")


async def fuzz(seed: int, numbers: range, *, loud: bool) -> int:
    """Runs the cases. Returns the number of connections that had to be failed, a sign that the fuzz bites."""
    fuzzer = Fuzzer(seed)
    begun = time.monotonic()
    for done, number in enumerate(numbers, 1):
        # A hang is a failure too: the watchdog prints where it hangs and ends the process.
        if done % 1000 == 1:
            faulthandler.dump_traceback_later(HANG_S, exit=True)
        try:
            await fuzzer.run_case(number)
            if done % SETTLE_EVERY == 0:
                await fuzzer.settle()
        except BaseException:
            say(f"case {number} failed; replay: python -m tests.fuzz.wire --seed {seed} --only {number}")
            raise
        if loud and done % 10_000 == 0:
            rate = done / (time.monotonic() - begun)
            say(f"{done} cases, {rate:.0f}/s, {fuzzer.failed_connections} connections failed")
    await fuzzer.settle()
    faulthandler.cancel_dump_traceback_later()
    gc.collect()
    promise(len(fuzzer.protocols) <= 1, f"{len(fuzzer.protocols)} connections are still in memory")
    return fuzzer.failed_connections


def main() -> None:
    parser = argparse.ArgumentParser(description="Fuzz both ends of the wire.")
    parser.add_argument("--cases", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="run this one case")
    args = parser.parse_args()
    numbers = range(args.cases) if args.only is None else range(args.only, args.only + 1)
    begun = time.monotonic()
    failed = asyncio.run(fuzz(args.seed, numbers, loud=True))
    say(f"ok: {len(numbers)} cases in {time.monotonic() - begun:.1f} s, {failed} connections failed as they should")


if __name__ == "__main__":
    main()

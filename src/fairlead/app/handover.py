"""One daemon takes over from another without a moment in which the kubelet has no devices.

The new one scans while the old one serves, registers in its place, and keeps the old connections to the kubelet open.
A new one that fails on the way, or ends soon after, leaves the old one serving. Owns that order, on both sides;
`fronts.handover` has the messages.
"""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import TYPE_CHECKING, Self

from fairlead.fronts import handover
from fairlead.fronts.deviceplugin.lifecycle import Phase
from fairlead.fronts.handover import Ended, Line, Message
from fairlead.kit.waiting import first_of
from fairlead.model.errors import HostError

if TYPE_CHECKING:
    from fairlead.app.daemon import Daemon

REGISTERED_S = 30.0  # how long a successor waits for the kubelet before it asks for the old connections
GIVE_S = 30.0  # and how much longer the daemon before it waits for that
LOOK_S = 0.02
SCANS_LOOK_S = 0.2
# How long a daemon outside a pod stays after it was relieved, in case its successor fails. One in a pod waits to be
# stopped: the kubelet would only start its container again.
LINGER_S = 10.0
REENTER_S = 1.0
SERVED = "another daemon serves until this one has taken over"


class TakeOver:
    """The side of the new daemon."""

    def __init__(self, daemon: Daemon, line: Line, finders: frozenset[str] = frozenset()) -> None:
        self._daemon = daemon
        self._line = line
        self._finders = finders  # backends of the daemon before us that have found devices

    @classmethod
    async def begin(cls, daemon: Daemon, path: Path, taken: HostError) -> Self:
        """`taken`: why the directory cannot be had. Raises it, with the reason, if it cannot be taken over either."""
        line = handover.connect(path)
        if line is None:
            raise HostError(f"{taken}. It cannot hand over: it is another program or an older version") from taken
        try:
            await line.send(Message("hello", text=daemon.description))
            answer = await _expect(line, "hello")
        except BaseException as error:
            line.close()
            if isinstance(error, Ended):
                raise HostError(f"{taken}. It does not hand over: {error}") from taken
            raise
        daemon.journal.record("taking-over", directory=str(daemon.directory), holder=answer.text)
        daemon.problems.note("handover", SERVED)
        return cls(daemon, line, frozenset(answer.backends))

    async def scanned(self) -> None:
        """Until every backend that has devices there has scanned here too: they would leave, and pods be refused.

        Not for longer than the daemon before us lives: what works is then better than nothing.
        """
        if missing := self._unscanned():
            self._daemon.journal.record("take-over-waits", backends=missing)
            self._daemon.problems.note("handover", f"{SERVED}, which waits for a scan of {', '.join(missing)}")
            await first_of(self._line.ended(), self._scans_work())
            self._daemon.problems.note("handover", SERVED)

    def _unscanned(self) -> tuple[str, ...]:
        live = self._daemon.engine.sources.live
        return tuple(name for name in live if name in self._finders and live[name].scanned_s is None)

    async def _scans_work(self) -> None:
        while self._unscanned():
            await self._daemon.clock.sleep(SCANS_LOOK_S)

    async def release(self) -> bool:
        """The daemon before us gives up its locks. False: it did not say so; if it ends, they are free in a moment."""
        try:
            await self._line.send(Message("release"))
            released = await _expect(self._line, "released")
            self._daemon.engine.sources.inherit(released.tracks)
        except Ended as error:
            self._daemon.journal.record("handover-failed", reason=str(error))
            return False
        return True

    async def finish(self) -> None:
        """Keeps the connections of the daemon before us open from when ours are in their place. Until it has ended."""
        daemon = self._daemon
        endpoints = daemon.supervisor.endpoints
        try:
            await self._registered()
            ours = tuple(each.name for each in endpoints.values() if each.life.phase is Phase.STREAMING)
            await self._line.send(Message("give", resources=ours))
            daemon.journal.record("taken-over", connections=await self._inherit())
        except Ended as error:
            daemon.journal.record("handover-failed", reason=str(error))
        daemon.problems.note("handover", "")
        await self._line.ended()
        self._line.close()
        for endpoint in endpoints.values():
            endpoint.inherited.watch()

    def close(self) -> None:
        self._line.close()

    async def _registered(self) -> None:
        clock = self._daemon.clock
        limit_s = clock.monotonic() + REGISTERED_S
        endpoints = self._daemon.supervisor.endpoints.values()
        while any(each.life.phase is not Phase.STREAMING for each in endpoints) and clock.monotonic() < limit_s:
            await clock.sleep(LOOK_S)

    async def _inherit(self) -> int:
        endpoints = {str(name): endpoint for name, endpoint in self._daemon.supervisor.endpoints.items()}
        count = 0
        while True:
            message, descriptors = await self._line.receive()
            endpoint = endpoints.get(message.resource)
            if message.kind == "connections" and endpoint is not None:
                endpoint.inherited.adopt(descriptors)
                count += len(descriptors)
            else:
                handover.close_all(descriptors)
                if message.kind != "connections":
                    return count


class HandOver:
    """The side of the daemon that serves."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon

    async def run(self) -> None:
        """Until cancelled. A directory without a place for the socket has no take-overs; devices are served as ever."""
        daemon = self._daemon
        while True:
            try:
                door = handover.Door(daemon.entry.handover_socket)
            except HostError as error:
                daemon.journal.record("handover-unavailable", reason=str(error))
                if not _passes(error.__cause__):
                    return
                await daemon.clock.sleep(REENTER_S)
                continue
            line = None
            try:
                line = await self._asked(door)
                door.close()
                await self._serve(line)
            except Ended as error:
                daemon.journal.record("handover-ended", reason=str(error))
            except OSError as error:  # out of descriptors
                daemon.journal.record("handover-failed", reason=error.strerror or str(error))
                await daemon.clock.sleep(REENTER_S)
            finally:
                door.close()
                if line is not None:
                    line.close()
            await self._resume()

    async def _asked(self, door: handover.Door) -> Line:
        """A successor that is ready. One that comes later takes the place of one that is not: that one may hang."""
        coming = asyncio.ensure_future(door.next())
        line: Line | None = None
        asked: asyncio.Future[Line] | None = None
        try:
            while True:
                waiting = {coming} if asked is None else {coming, asked}
                done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                if asked is not None and asked in done and not asked.cancelled() and asked.exception() is None:
                    return asked.result()
                if coming in done:
                    newer = coming.result()
                    await _end(asked, line)
                    line, coming = newer, asyncio.ensure_future(door.next())
                    asked = asyncio.ensure_future(self._greet(line))
                else:
                    await _end(asked, line)
                    line = asked = None
        except BaseException:
            await _end(asked, line)
            raise
        finally:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)

    async def _greet(self, line: Line) -> Line:
        await _expect(line, "hello")
        sources = self._daemon.engine.sources.live
        found = tuple(name for name, source in sources.items() if source.findings.devices)
        await line.send(Message("hello", text=self._daemon.description, backends=found))
        await _expect(line, "release", None)
        return line

    async def _serve(self, line: Line) -> None:
        """Returns when the successor has ended, or raises Ended."""
        daemon = self._daemon
        await daemon.supersede()
        await line.send(handover.with_tracks(Message("released"), daemon.engine.sources.ailing))
        wanted = await _expect(line, "give", REGISTERED_S + GIVE_S)
        await self._give(line, frozenset(wanted.resources))
        await daemon.leave_cluster()
        daemon.journal.record("handed-over", resources=wanted.resources)
        try:
            async with asyncio.timeout(None if daemon.in_pod else LINGER_S):
                await line.ended()
        except TimeoutError:
            daemon.stop()
            await asyncio.Event().wait()  # the line stays open till our end: until then the successor reads nothing

    async def _give(self, line: Line, wanted: frozenset[str]) -> None:
        for endpoint in list(self._daemon.supervisor.endpoints.values()):
            if endpoint.name in wanted:
                for some in handover.batches(endpoint.give()):
                    await line.send(Message("connections", resource=endpoint.name), some)
        self._daemon.supervisor.keep(wanted)
        await line.send(Message("given"))

    async def _resume(self) -> None:
        """The successor is gone. If yet another daemon has the directory, that one serves."""
        daemon = self._daemon
        while daemon.superseded and not daemon.stopped.is_set():
            try:
                await daemon.resume()
            except HostError as error:
                daemon.problems.note("handover", f"the daemon that took over has ended, and: {error}")
                await daemon.clock.sleep(REENTER_S)
            else:
                daemon.problems.note("handover", "")


async def _end(asked: asyncio.Future[Line] | None, line: Line | None) -> None:
    if asked is not None:
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
    if line is not None:
        line.close()


async def _expect(line: Line, kind: handover.Kind, timeout_s: float | None = handover.ANSWER_S) -> Message:
    message, descriptors = await line.receive(timeout_s)
    handover.close_all(descriptors)
    if message.kind != kind or message.version != handover.VERSION:
        said = message.text or f"it says {message.kind!r} of version {message.version}"
        if message.kind != "refused":
            await line.send(Message("refused", text=f"{kind!r} of version {handover.VERSION} was expected"))
        raise Ended(said)
    return message


def _passes(cause: BaseException | None) -> bool:
    """Whether there may be room for a socket later: descriptors or a disk that ran out."""
    return isinstance(cause, OSError) and cause.errno in {errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.ENOMEM}

"""A connection whose client goes at an awkward moment: it ends, and asyncio has nothing to complain of."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

from tests.clock import FakeClock

from fairlead.scheduler.http.connection import Connection
from fairlead.scheduler.http.limits import Limits
from fairlead.scheduler.http.service import Service


class Gone(asyncio.Transport):
    """Its client has reset the connection: what was written seemed to go, and the end of it cannot be told."""

    def __init__(self, *, full: bool = False) -> None:
        super().__init__()
        self.full, self.ends, self.written = full, 0, b""
        self.protocol: Any = None

    def is_closing(self) -> bool:
        return False

    def can_write_eof(self) -> bool:
        return True

    def write(self, data: Any) -> None:
        self.written += bytes(data)
        if self.full:
            self.protocol.pause_writing()

    def write_eof(self) -> None:
        self.ends += 1
        raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None: ...

    def abort(self) -> None: ...


def connected(transport: Gone) -> Connection:
    service = Service({}, FakeClock(), Limits(), lambda _path, _error: None)
    connection = transport.protocol = Connection(service)
    connection.connection_made(transport)
    return connection


async def test_a_client_that_is_gone_when_it_is_refused_is_no_error():
    transport = Gone()
    connected(transport).data_received(b"nonsense\r\n\r\n")
    assert transport.written.startswith(b"HTTP/1.1 400")
    assert transport.ends == 1


async def test_the_end_is_told_when_all_was_written_and_not_before():
    """asyncio would tell it by itself, and print a traceback for a client that has gone."""
    transport = Gone(full=True)
    connection = connected(transport)
    connection.data_received(b"nonsense\r\n\r\n")
    assert transport.ends == 0
    connection.resume_writing()
    await asyncio.sleep(0)
    assert transport.ends == 1

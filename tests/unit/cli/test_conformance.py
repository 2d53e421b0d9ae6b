"""What `fairlead conformance` keeps to itself: the gRPC library's own complaints when its sockets are closed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fairlead.cli.conformance import _quiet


def fail_in(filename: str) -> BaseException:
    """An error that was raised in this file."""
    code = compile("raise BlockingIOError(11, 'again')", filename, "exec")
    try:
        exec(code)
    except BlockingIOError as error:
        return error
    raise AssertionError


@pytest.mark.parametrize(
    ("filename", "told"),
    [
        ("src/python/grpcio/grpc/_cython/_cygrpc/aio/completion_queue.pyx.pxi", False),
        ("/lib/python3/site-packages/grpc/aio/_channel.py", False),
        ("/lib/python3/site-packages/fairlead/standin/kubelet.py", True),
    ],
)
def test_only_errors_out_of_the_grpc_library_are_kept_quiet(filename: str, told: bool):
    heard: list[dict[str, Any]] = []
    loop = asyncio.new_event_loop()
    try:
        loop.default_exception_handler = heard.append  # type: ignore[method-assign, assignment]  # to hear what would be printed
        _quiet(loop, {"message": "Exception in callback", "exception": fail_in(filename)})
        _quiet(loop, {"message": "a task was never awaited"})
    finally:
        loop.close()
    assert ["exception" in one for one in heard] == ([True] if told else []) + [False]

"""The daemon's own socket: one line in, one line out, for its owner only."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from fairlead.model.errors import FairleadError, HostError, NotRunning, UsageError
from fairlead.observe.control import Control, ask


async def echo(request: Mapping[str, Any]) -> Any:
    return dict(request)


async def fail(_request: Mapping[str, Any]) -> Any:
    raise UsageError("no such thing")


async def odd(request: Mapping[str, Any]) -> Any:
    return int(request["count"])


@pytest.fixture
async def control(kubelet_root: Path) -> AsyncIterator[Control]:
    control = Control(kubelet_root / "run" / "c.sock", {"echo": echo, "fail": fail, "odd": odd})
    await control.start()
    yield control
    await control.close()


async def test_a_question_is_answered(control: Control):
    assert await asyncio.to_thread(ask, control.path, {"ask": "echo", "n": 1}) == {"ask": "echo", "n": 1}


async def test_an_error_keeps_its_words_and_exit_code(control: Control):
    with pytest.raises(FairleadError, match="no such thing") as caught:
        await asyncio.to_thread(ask, control.path, {"ask": "fail"})
    assert caught.value.exit_code == UsageError.exit_code


async def test_an_unknown_question_lists_the_known_ones(control: Control):
    with pytest.raises(FairleadError, match="known are: echo, fail, odd"):
        await asyncio.to_thread(ask, control.path, {"ask": "what"})


@pytest.mark.parametrize(
    "line", [b"not json\n", b"[]\n", b"\xff\n", b"{}\n", b"x" * 70_000 + b"\n", b'{"ask": "odd"}\n']
)
async def test_nonsense_is_answered_with_an_error(control: Control, line: bytes):
    reader, writer = await asyncio.open_unix_connection(control.path)
    writer.write(line)
    assert b'"error"' in await reader.read()
    writer.close()


async def test_a_caller_that_says_nothing_or_too_much_harms_nobody(control: Control):
    for data in (b"", b"x" * 200_000):
        _, writer = await asyncio.open_unix_connection(control.path)
        writer.write(data)
        writer.close()
    assert await asyncio.to_thread(ask, control.path, {"ask": "echo"}) == {"ask": "echo"}


async def test_closing_removes_only_its_own_socket(kubelet_root: Path):
    path = kubelet_root / "c.sock"
    control = Control(path, {})
    await control.close()  # never started
    await control.start()
    with pytest.raises(HostError, match="another daemon answers"):
        await Control(path, {}).start()
    path.unlink()
    other = Control(path, {"echo": echo})
    await other.start()
    await control.close()
    assert await asyncio.to_thread(ask, path, {"ask": "echo"})
    await other.close()
    assert not path.exists()


async def test_a_place_that_cannot_be_used_is_named(kubelet_root: Path):
    (kubelet_root / "file").write_text("")
    with pytest.raises(HostError, match="--status-socket"):
        await Control(kubelet_root / "file" / "c.sock", {}).start()
    with pytest.raises(HostError, match="107"):
        await Control(kubelet_root / ("x" * 120), {}).start()


def test_no_daemon_is_one_clear_line(kubelet_root: Path):
    with pytest.raises(NotRunning, match="Is `fairlead run` running"):
        ask(kubelet_root / "none.sock", {})


def test_an_answer_that_is_cut_off_is_told(kubelet_root: Path):
    path = kubelet_root / "c.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()

        import threading

        def serve() -> None:
            connection, _ = server.accept()
            connection.recv(100)
            connection.send(b'{"ok": ')
            connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(NotRunning, match="cut off"):
            ask(path, {"ask": "x"})
        thread.join()

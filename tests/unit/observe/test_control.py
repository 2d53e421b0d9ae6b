"""The daemon's own socket: one line in, one line out, for its owner only."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from fairlead.model.errors import FairleadError, HostError, NotRunning, UsageError
from fairlead.observe.control import MAX_WAITING, Control, ask
from fairlead.wire.rpc import Peer


async def echo(request: Mapping[str, Any], _peer: Peer) -> Any:
    return dict(request)


async def fail(_request: Mapping[str, Any], _peer: Peer) -> Any:
    raise UsageError("no such thing")


async def odd(request: Mapping[str, Any], _peer: Peer) -> Any:
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


async def connect(control: Control, line: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_unix_connection(control.path, limit=2**26)
    writer.write(line)
    return reader, writer


async def test_questions_are_worked_on_one_at_a_time_and_too_many_are_refused(kubelet_root: Path):
    go, running, most = asyncio.Event(), 0, 0

    async def slow(_request: Mapping[str, Any], _peer: Peer) -> Any:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await go.wait()
        running -= 1

    control = Control(kubelet_root / "c.sock", {"slow": slow})
    await control.start()
    callers = [asyncio.create_task(_read(*await connect(control, b'{"ask": "slow"}\n'))) for _ in range(40)]
    async with asyncio.timeout(10):
        while sum(caller.done() for caller in callers) < 40 - MAX_WAITING:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.001)
    go.set()
    answers = await asyncio.gather(*callers)
    await control.close()
    assert most == 1
    assert sum(b'"ok"' in answer for answer in answers) == MAX_WAITING
    refused = [answer for answer in answers if b'"ok"' not in answer]
    assert all(b"the daemon is busy" in answer and b"Ask again later" in answer for answer in refused)


async def _read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    answer = await reader.read()
    writer.close()
    return answer


async def test_work_that_takes_time_is_done_on_a_thread(kubelet_root: Path):
    where: list[int] = []

    async def heavy(_request: Mapping[str, Any], _peer: Peer) -> Any:
        return lambda: where.append(threading.get_ident())

    control = Control(kubelet_root / "c.sock", {"heavy": heavy})
    await control.start()
    await asyncio.to_thread(ask, control.path, {"ask": "heavy"})
    await control.close()
    assert where != [threading.get_ident()]


async def test_a_caller_that_does_not_read_is_left_and_its_answer_let_go(
    kubelet_root: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("fairlead.observe.control.READ_DEADLINE_S", 0.05)

    async def large(_request: Mapping[str, Any], _peer: Peer) -> Any:
        return "x" * 10_000_000

    control = Control(kubelet_root / "c.sock", {"large": large, "echo": echo})
    await control.start()
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.setblocking(False)
        deaf.connect(str(control.path))
        deaf.send(b'{"ask": "large"}\n')
        async with asyncio.timeout(10):
            while not control._open:  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(0.001)
            while control._open:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.001)
        assert control._unsent_bytes == 0
    await control.close()


async def test_one_connection_too_many_is_told_so(kubelet_root: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("fairlead.observe.control.MAX_CONNECTIONS", 3)
    control = Control(kubelet_root / "c.sock", {"echo": echo})
    await control.start()
    held = [await connect(control, b"") for _ in range(3)]
    async with asyncio.timeout(10):
        while len(control._open) < 3:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.001)
    with pytest.raises(FairleadError, match="over 3 connections are open"):
        await asyncio.to_thread(ask, control.path, {"ask": "echo"})
    for _, writer in held:
        writer.close()
    await control.close()


async def test_a_handler_knows_who_asks(kubelet_root: Path):
    async def who(_request: Mapping[str, Any], peer: Peer) -> Any:
        return [peer.pid, peer.uid]

    control = Control(kubelet_root / "c.sock", {"who": who})
    await control.start()
    assert await asyncio.to_thread(ask, control.path, {"ask": "who"}) == [os.getpid(), os.getuid()]
    await control.close()


async def test_a_name_that_is_not_utf8_is_asked_for_and_answered(control: Control):
    answer = await asyncio.to_thread(ask, control.path, {"ask": "echo", "name": "nic\udcff"})
    assert answer["name"] == r"nic\xff"
    control._handlers = {
        "odd": lambda _request, _peer: asyncio.sleep(0, {"devices": ["nic\udcff"], "nic\udcff": Path("\udcff")})
    }
    answer = await asyncio.to_thread(ask, control.path, {"ask": "odd"})
    assert answer == {"devices": [r"nic\xff"], r"nic\xff": r"\xff"}

"""The name of a Google machine, from its metadata server."""

from __future__ import annotations

import asyncio

import pytest
from tests.apiserver.metadata import metadata_server

from fairlead.cluster import metadata
from fairlead.cluster.errors import ClusterError
from fairlead.cluster.metadata import read_instance_name


async def test_the_name_of_the_instance_is_read():
    async with metadata_server(b"gke-pool-1\n") as host:
        assert await read_instance_name(host) == "gke-pool-1"


@pytest.mark.parametrize(
    ("answer", "status", "words"),
    [
        (b"x" * 1000, "200 OK", "over 253 bytes"),
        (b"<html>", "200 OK", "which is no name of a node"),
        (b"", "200 OK", "which is no name of a node"),
        (b"\xff\xfe", "200 OK", "which is no name of a node"),
        (b"no", "404 Not Found", "it answers with 404"),
    ],
)
async def test_another_answer_is_no_name(answer: bytes, status: str, words: str):
    async with metadata_server(answer, status) as host:
        with pytest.raises(ClusterError, match=words):
            await read_instance_name(host)


async def test_a_server_that_does_not_answer_is_given_up_after_a_short_time(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(metadata, "DEADLINE_S", 0.05)

    ended = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()  # until the other side gives up
        writer.close()
        await writer.wait_closed()
        ended.set()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    try:
        with pytest.raises(ClusterError, match=r"0\.05"):
            await read_instance_name(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
    finally:
        server.close()
    await ended.wait()


async def test_where_there_is_no_server_the_error_says_so():
    with pytest.raises(ClusterError, match=r"127\.0\.0\.1:1"):
        await read_instance_name("127.0.0.1:1")

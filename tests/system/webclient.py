"""Requests over HTTP to the daemon of a test."""

from __future__ import annotations

import asyncio

from tests.system.rig import PATIENCE_S, SIM, Node

HTTP = SIM + "http: {listen: '127.0.0.1:0'}\n"


def ask_for(path: str, *fields: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: 127.0.0.1", "Connection: close", *fields, "", ""]).encode()


async def get(node: Node, path: str, *fields: str) -> tuple[int, str]:
    """The status and the body."""
    assert node.daemon.web is not None
    await node.until_fact("http")
    reader, writer = await asyncio.open_connection("127.0.0.1", node.daemon.web.port)
    writer.write(ask_for(path, *fields))
    async with asyncio.timeout(PATIENCE_S):
        answer = (await reader.read()).decode()
    writer.close()
    head, _, body = answer.partition("\r\n\r\n")
    return int(head.split(" ")[1]), body

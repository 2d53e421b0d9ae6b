"""The metadata server of Google's machines: which instance this is. One short request, without credentials."""

from __future__ import annotations

import asyncio
import re

from fairlead.cluster.access import Access, parse_server
from fairlead.cluster.connection import connect
from fairlead.cluster.errors import MalformedResponse, TooSlow, Unreachable
from fairlead.cluster.http1 import encode

PATH = "/computeMetadata/v1/instance/name"
DEADLINE_S = 2.0
NAME_MAX_BYTES = 253
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


async def read_instance_name(host: str) -> str:
    """The name of this instance, which is that of its node on GKE. Raises ClusterError."""
    server = parse_server(f"http://{host}", where="cluster.nodeMetadata")
    try:
        async with asyncio.timeout(DEADLINE_S):
            text = await _read(Access(server, source="cluster.nodeMetadata"))
    except TimeoutError:
        raise TooSlow(f"the name of this instance at {server}", DEADLINE_S) from None
    if not _NAME.fullmatch(text):
        raise MalformedResponse(f"{server} says that this instance is {text!r:.80}, which is no name of a node")
    return text


async def _read(access: Access) -> str:
    connection = await connect(access)
    try:
        headers = {"Host": access.server.authority, "Metadata-Flavor": "Google", "Connection": "close"}
        head = await connection.send(encode("GET", access.server.prefix + PATH, headers, b""))
        if head.status != 200:
            raise Unreachable(str(access.server), f"it answers with {head.status}", "Set NODE_NAME or cluster.node")
        body = b""
        async for piece in connection.body():
            body += piece
            if len(body) > NAME_MAX_BYTES:
                raise MalformedResponse(f"{access.server}: the name of this instance is over {NAME_MAX_BYTES} bytes")
        return body.decode(errors="replace").strip()
    finally:
        connection.close()

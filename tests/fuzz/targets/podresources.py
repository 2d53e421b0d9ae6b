"""Pod-resources answers of a kubelet that says anything: they decode or they are an RpcError, over the real client."""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
from pathlib import Path

from tests.fuzz.mutate import damage_bytes
from tests.fuzz.targets import promise
from tests.fuzz.wire import Sink

from fairlead.kubelet.podresources import Holdings, Unknown, read_holdings
from fairlead.wire import frames as f
from fairlead.wire import podresources as pr
from fairlead.wire.grpc import OK_TRAILERS, RESPONSE_HEAD, prefix
from fairlead.wire.limits import Limits
from fairlead.wire.proto import DecodeError, decode, encode
from fairlead.wire.rpc import Channel, RpcError
from fairlead.wire.rpc_client import ClientLink

IDS = ("GPU-1", "GPU-2::0", "", "é", "x" * 80)


def some_answer(rng: random.Random) -> bytes:
    def devices() -> pr.ContainerDevices:
        topology = pr.TopologyInfo((pr.NUMANode(rng.choice((0, 1, -1, 1 << 40))),)) if rng.random() < 0.3 else None
        return pr.ContainerDevices(
            resource_name=rng.choice(("nvidia.com/gpu", "", "é/x")),
            device_ids=tuple(rng.choices(IDS, k=rng.randint(0, 4))),
            topology=topology,
        )

    def container() -> pr.ContainerResources:
        return pr.ContainerResources(
            name=rng.choice(("main", "")),
            devices=tuple(devices() for _ in range(rng.randint(0, 3))),
            cpu_ids=tuple(rng.choices((0, 1, 1 << 33), k=rng.randint(0, 3))),
            memory=(pr.ContainerMemory("hugepages", 1 << 40, None),) if rng.random() < 0.2 else (),
        )

    pods = tuple(
        pr.PodResources("p", "default", tuple(container() for _ in range(rng.randint(0, 2))))
        for _ in range(rng.randint(0, 3))
    )
    return encode(pr.ListPodResourcesResponse(pods))


def conversation(rng: random.Random) -> bytes:
    """What the kubelet says on stream 1."""
    body = prefix(damage_bytes(rng, some_answer(rng)))
    if rng.random() < 0.1:
        body = damage_bytes(rng, body)
    out = f.frame(f.HEADERS, f.END_HEADERS, 1, RESPONSE_HEAD) + f.frame(f.DATA, 0, 1, body)
    if rng.random() < 0.9:
        out += f.frame(f.HEADERS, f.END_HEADERS | f.END_STREAM, 1, OK_TRAILERS)
    return out


class PodResourcesTarget:
    block = 500

    async def start(self) -> None:
        self._root = Path(tempfile.mkdtemp(prefix="fl"))
        self._path = self._root / "pr.sock"
        self._said = b""
        self._server = await asyncio.start_unix_server(self._serve, str(self._path))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readexactly(len(f.PREFACE))
            writer.write(f.settings({}))
            await reader.readuntil(b"/List")  # its request is on the way
            writer.write(self._said)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def case(self, rng: random.Random) -> None:
        kind = rng.random()
        if kind < 0.6:
            data = damage_bytes(rng, some_answer(rng))
            try:
                answer = decode(pr.ListPodResourcesResponse, data)
            except DecodeError as error:
                promise(str(error), "an error says nothing")
            else:
                promise(decode(pr.ListPodResourcesResponse, encode(answer)) == answer, "what was read is not what is")
        elif kind < 0.98:
            await self._in_memory(rng)
        else:
            self._said = conversation(rng)
            found = await read_holdings(self._path, timeout_s=5.0)
            promise(isinstance(found, (Holdings, Unknown)), "neither an answer nor a reason")

    async def _in_memory(self, rng: random.Random) -> None:
        link = ClientLink(Limits(message_bytes=1 << 20))
        link.connection_made(Sink())
        link.data_received(f.settings({}))
        call = asyncio.ensure_future(Channel(link, "localhost").unary(pr.LIST, pr.ListPodResourcesRequest()))
        await asyncio.sleep(0)
        link.data_received(conversation(rng))
        link.connection_lost(None)
        try:
            await call
        except RpcError as error:
            promise(error.message, "an error says nothing")
        promise(not link.calls, "a call outlived its connection")

    async def stop(self) -> None:
        self._server.close()
        await asyncio.sleep(0)
        shutil.rmtree(self._root, ignore_errors=True)

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
from tests.unit.wire import podresources_whole as whole

from fairlead.fronts.podresources import read_holdings
from fairlead.model.holdings import Holdings, Unknown
from fairlead.wire import frames as f
from fairlead.wire import podresources as pr
from fairlead.wire.grpc import OK_TRAILERS, RESPONSE_HEADERS, length_prefixed
from fairlead.wire.limits import Limits
from fairlead.wire.proto import DecodeError, decode, encode
from fairlead.wire.rpc import Channel, RpcError
from fairlead.wire.rpc_client import ClientProtocol

IDS = ("GPU-1", "GPU-2::0", "", "é", "x" * 80)


def some_answer(rng: random.Random) -> bytes:
    def devices() -> whole.ContainerDevices:
        topology = (
            whole.TopologyInfo((whole.NUMANode(rng.choice((0, 1, -1, 1 << 40))),)) if rng.random() < 0.3 else None
        )
        return whole.ContainerDevices(
            resource_name=rng.choice(("nvidia.com/gpu", "", "é/x")),
            device_ids=tuple(rng.choices(IDS, k=rng.randint(0, 4))),
            topology=topology,
        )

    def container() -> whole.ContainerResources:
        return whole.ContainerResources(
            name=rng.choice(("main", "")),
            devices=tuple(devices() for _ in range(rng.randint(0, 3))),
            cpu_ids=tuple(rng.choices((0, 1, 1 << 33), k=rng.randint(0, 3))),
            memory=(whole.ContainerMemory("hugepages", 1 << 40, None),) if rng.random() < 0.2 else (),
        )

    pods = tuple(
        whole.PodResources("p", "default", tuple(container() for _ in range(rng.randint(0, 2))))
        for _ in range(rng.randint(0, 3))
    )
    return encode(whole.ListPodResourcesResponse(pods))


def conversation(rng: random.Random) -> bytes:
    """What the kubelet says on stream 1."""
    body = length_prefixed(damage_bytes(rng, some_answer(rng)))
    if rng.random() < 0.1:
        body = damage_bytes(rng, body)
    out = f.frame(f.HEADERS, f.END_HEADERS, 1, RESPONSE_HEADERS) + f.frame(f.DATA, 0, 1, body)
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
        protocol = ClientProtocol(Limits(message_bytes=1 << 20))
        protocol.connection_made(Sink())
        protocol.data_received(f.settings({}))
        call = asyncio.ensure_future(Channel(protocol, "localhost").unary(pr.LIST, pr.ListPodResourcesRequest()))
        await asyncio.sleep(0)
        protocol.data_received(conversation(rng))
        protocol.connection_lost(None)
        try:
            await call
        except RpcError as error:
            promise(error.message, "an error says nothing")
        promise(not protocol.calls, "a call outlived its connection")

    async def stop(self) -> None:
        self._server.close()
        await asyncio.sleep(0)
        shutil.rmtree(self._root, ignore_errors=True)

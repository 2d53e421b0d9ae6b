"""A DevicePlugin with trivial handlers on our server, for foreign clients: `python -m tests.interop.echo_server`."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import socket
from typing import TYPE_CHECKING

from fairlead.wire import deviceplugin as dp
from fairlead.wire.proto import encode
from fairlead.wire.rpc import Call, RpcError, Server, Status
from fairlead.wire.unix import listen

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


def allocate(request: dp.AllocateRequest, _call: Call) -> dp.AllocateResponse:
    return dp.AllocateResponse(
        tuple(
            dp.ContainerAllocateResponse(envs={"DEVICES": ",".join(container.device_ids)})
            for container in request.container_requests
        )
    )


def prefer(request: dp.PreferredAllocationRequest, _call: Call) -> dp.PreferredAllocationResponse:
    return dp.PreferredAllocationResponse(
        tuple(
            dp.ContainerPreferredAllocationResponse(container.available_ids[: container.allocation_size])
            for container in request.container_requests
        )
    )


async def prepare(request: dp.PreStartContainerRequest, call: Call) -> dp.PreStartContainerResponse:
    """The first id says what to do: `sleep`, `fail`, `crash`; anything else is fine."""
    order = request.device_ids[0] if request.device_ids else ""
    if order == "sleep":
        await asyncio.sleep(3600)
    if order == "fail":
        raise RpcError(Status.FAILED_PRECONDITION, "gerät fehlt: 100 % weg\n☂")
    if order == "crash":
        raise LookupError("no such device")
    return dp.PreStartContainerResponse()


def make_server(devices: int) -> Server:
    listing = encode(
        dp.ListAndWatchResponse(
            tuple(dp.Device(f"device-{i}", dp.HEALTHY, dp.TopologyInfo((dp.NUMANode(i % 2),))) for i in range(devices))
        )
    )

    async def list_and_watch(_request: dp.Empty, _call: Call) -> AsyncIterator[bytes]:
        yield listing
        await asyncio.Event().wait()

    return Server(
        {
            dp.GET_OPTIONS: lambda _request, _call: dp.DevicePluginOptions(get_preferred_allocation_available=True),
            dp.LIST_AND_WATCH: list_and_watch,
            dp.GET_PREFERRED_ALLOCATION: prefer,
            dp.ALLOCATE: allocate,
            dp.PRE_START_CONTAINER: prepare,
        }
    )


async def serve(sock: socket.socket, devices: int) -> None:
    server = make_server(devices)
    await server.start(sock)
    print("ready", flush=True)
    done = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, done.set)
    await done.wait()
    await server.stop(0.2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--tcp", type=int, metavar="PORT")
    where.add_argument("--unix", metavar="PATH")
    parser.add_argument("--devices", type=int, default=8)
    args = parser.parse_args()
    sock = listen(args.unix) if args.unix else socket.create_server(("127.0.0.1", args.tcp))
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(sock, args.devices))


if __name__ == "__main__":
    main()

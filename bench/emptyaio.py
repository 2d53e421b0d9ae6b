"""The least a device plugin can be on grpc.aio: a yardstick for the bench, the Python twin of tests/go/emptyplugin.

A fixed list of devices, one environment variable for each Allocate, and a new registration whenever kubelet.sock is
made again. It must not import fairlead: it stands for what one would write without it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.util
import logging
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
from asyncinotify import Inotify, Mask

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

GENERATED = Path(__file__).parents[1] / "src/fairlead/standin/_gen/deviceplugin_v1beta1_pb2.py"
SERVICE = "v1beta1.DevicePlugin"
LOG = logging.getLogger("emptyaio")
RETRY_S = 0.002  # kubelet.sock's file is there an instant before it accepts


def _load_messages() -> Any:
    # Loaded by its file, so that nothing of the fairlead package is counted as this plugin's.
    spec = importlib.util.spec_from_file_location("deviceplugin_v1beta1_pb2", GENERATED)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{GENERATED} is missing; `make proto` makes it")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


pb = _load_messages()


class Plugin:
    def __init__(self, devices: int) -> None:
        self.list = pb.ListAndWatchResponse(
            devices=[pb.Device(ID=f"dev-{index}", health="Healthy") for index in range(devices)]
        )

    async def options(self, request: Any, context: Any) -> Any:  # noqa: ARG002  gRPC's signature
        return pb.DevicePluginOptions(get_preferred_allocation_available=True)

    async def list_and_watch(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: ARG002  gRPC's signature
        yield self.list
        await asyncio.Event().wait()

    async def preferred(self, request: Any, context: Any) -> Any:  # noqa: ARG002  gRPC's signature
        return pb.PreferredAllocationResponse(
            container_responses=[
                pb.ContainerPreferredAllocationResponse(deviceIDs=each.available_deviceIDs[: each.allocation_size])
                for each in request.container_requests
            ]
        )

    async def allocate(self, request: Any, context: Any) -> Any:  # noqa: ARG002  gRPC's signature
        return pb.AllocateResponse(
            container_responses=[
                pb.ContainerAllocateResponse(envs={"VISIBLE_DEVICES": ",".join(each.devices_ids)})
                for each in request.container_requests
            ]
        )

    def handlers(self) -> Any:
        def unary(method: Any, request: Any, response: Any) -> Any:
            return grpc.unary_unary_rpc_method_handler(method, request.FromString, response.SerializeToString)

        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "GetDevicePluginOptions": unary(self.options, pb.Empty, pb.DevicePluginOptions),
                "ListAndWatch": grpc.unary_stream_rpc_method_handler(
                    self.list_and_watch, pb.Empty.FromString, pb.ListAndWatchResponse.SerializeToString
                ),
                "GetPreferredAllocation": unary(
                    self.preferred, pb.PreferredAllocationRequest, pb.PreferredAllocationResponse
                ),
                "Allocate": unary(self.allocate, pb.AllocateRequest, pb.AllocateResponse),
            },
        )


async def serve(plugin: Plugin, directory: Path, endpoint: str, resource: str) -> grpc.aio.Server:
    """Binds, serves, registers: one life between two kubelet starts."""
    socket = directory / endpoint
    socket.unlink(missing_ok=True)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((plugin.handlers(),))
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    try:
        await register(directory, endpoint, resource)
    except BaseException:
        await server.stop(None)
        raise
    return server


async def register(directory: Path, endpoint: str, resource: str) -> None:
    async with grpc.aio.insecure_channel(f"unix:{directory / 'kubelet.sock'}") as channel:
        call = channel.unary_unary(
            "/v1beta1.Registration/Register", pb.RegisterRequest.SerializeToString, pb.Empty.FromString
        )
        await call(pb.RegisterRequest(version="v1beta1", endpoint=endpoint, resource_name=resource), timeout=5)


async def follow(plugin: Plugin, directory: Path, endpoint: str, resource: str) -> None:
    """Registers now and after each kubelet start, until cancelled."""
    server: grpc.aio.Server | None = None
    with Inotify() as inotify:
        inotify.add_watch(directory, Mask.CREATE)
        wanted = (directory / "kubelet.sock").exists()
        while True:
            while wanted:
                if server is not None:
                    await server.stop(None)
                    server = None
                try:
                    server = await serve(plugin, directory, endpoint, resource)
                    wanted = False
                except grpc.aio.AioRpcError as error:
                    LOG.warning("not registered: %s", error.details())
                    await asyncio.sleep(RETRY_S)
            event = await inotify.get()
            wanted = event.name is not None and event.name.name == "kubelet.sock"


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--endpoint", default="aio.sock")
    parser.add_argument("--resource", default="example.com/empty")
    parser.add_argument("--devices", type=int, default=8)
    given = parser.parse_args()
    task = asyncio.create_task(follow(Plugin(given.devices), given.dir, given.endpoint, given.resource))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task


def run() -> None:
    asyncio.run(main())


if __name__ == "__main__":
    run()

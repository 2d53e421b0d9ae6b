"""An API server with pods, and a kubelet's pod-resources, in a process of their own: one JSON line in, one back.

Owns the pods and who holds what. Must not know what is measured with them. `Cluster` is the other end of the lines.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from bench.process import PluginFailedError
from tests.apiserver.server import ApiServer, api_server
from tests.system.desk import GPUSHARE, NODE
from tests.system.supply import put_node, put_pod, write_kubeconfig

from fairlead.standin._gen import podresources_v1_pb2 as pr
from fairlead.standin.servers import Socket, podresources_service

if TYPE_CHECKING:
    from types import TracebackType

ROOT = Path(__file__).parents[1]
LINE_BYTES = 64 << 20
PATIENCE_S = 60.0
NAMESPACE = "default"


class Cluster:
    """Starts the process. What it makes lies in `home`."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.kubeconfig, self.pod_resources = home / "kubeconfig", home / "pr.sock"
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "bench.cluster",
            self.home,
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LINE_BYTES,
        )
        await self.ask("ready")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.terminate()
            await self._process.wait()

    async def ask(self, op: str, **fields: Any) -> Any:
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise RuntimeError("the cluster is not running")
        process.stdin.write(json.dumps({"op": op, **fields}).encode() + b"\n")
        async with asyncio.timeout(PATIENCE_S):
            line = await process.stdout.readline()
        answer = json.loads(line) if line else {"error": "it ended"}
        if "error" in answer:
            raise PluginFailedError(f"the API server's process: {op}: {answer['error']}")
        return answer


class Desk:
    """Inside the process."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self.held: dict[str, list[str]] = {}

    async def answer(self, ask: dict[str, Any]) -> dict[str, Any]:
        match ask["op"]:
            case "put":
                for pod in ask["pods"]:
                    node = pod.get("node", NODE)
                    put_pod(self.server, GPUSHARE, pod["name"], pod["amount"], str(pod["card"]), pod["time"], node=node)
            case "hold":
                self.held[ask["pod"]] = ask["ids"]
            case "drop":
                for name in ask["pods"]:
                    self.held.pop(name, None)
                    self.server.store.remove("pods", name, NAMESPACE)
                self.server.store.history.clear()  # nobody looks back, and the objects of thousands of pods weigh
            case "marked":
                await self._marked(ask["pods"])
        return {"at_ns": time.clock_gettime_ns(time.CLOCK_MONOTONIC)}

    async def _marked(self, names: list[str]) -> None:
        store = self.server.store
        async with asyncio.timeout(PATIENCE_S / 2):
            for name in names:
                while store.get("pods", name, NAMESPACE)["metadata"]["annotations"].get(GPUSHARE.assigned) != "true":
                    await store.news()

    def listed(self) -> pr.ListPodResourcesResponse:
        return pr.ListPodResourcesResponse(pod_resources=[self.shown(pod) for pod in self.held])

    def shown(self, pod: str) -> pr.PodResources:
        devices = [pr.ContainerDevices(resource_name=GPUSHARE.resource, device_ids=self.held.get(pod, []))]
        return pr.PodResources(
            name=pod, namespace=NAMESPACE, containers=[pr.ContainerResources(name="main", devices=devices)]
        )


async def serve(home: Path) -> None:
    async with api_server() as server:
        desk = Desk(server)
        put_node(server)
        write_kubeconfig(home / "kubeconfig", server.url)
        services = podresources_service(
            desk.listed, lambda name, _: desk.shown(name), pr.AllocatableResourcesResponse, None
        )
        socket = Socket(home / "pr.sock", home / "pr-scratch", services)
        await socket.start()
        reader = asyncio.StreamReader(limit=LINE_BYTES)
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            try:
                answer = await desk.answer(json.loads(line))
            except Exception as error:  # noqa: BLE001  who asked is told, whatever it was
                answer = {"error": f"{type(error).__name__}: {error}"}
            print(json.dumps(answer), flush=True)
        await socket.stop()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))

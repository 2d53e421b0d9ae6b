"""A node as a recording of a memory-sharing plugin had it: its cards, its API server, and its kubelet's end.

The kubelet's end asks what the recording asked. A kubelet never gives an id twice, so where the recording asks for the
list's first ids again, ours is asked for the first free ones; and it shows in its pod-resources who has them.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from fairlead.standin._gen import deviceplugin_v1beta1_pb2 as dp
from fairlead.standin._gen import podresources_v1_pb2 as pr
from fairlead.standin.servers import Socket, podresources_service
from tests.apiserver.server import ApiServer, Fault, api_server
from tests.nvml import Driver, Gpu
from tests.nvml import Node as Machine
from tests.nvml.driver import Fault as NvmlFault
from tests.nvml.values import ALL_EVENTS
from tests.peers.nvidia.kubelet import Followed, Kubelet, kubelet
from tests.vectors.sharing import Case

COMMANDS = {"mini": "doslab"} | {word: word for word in ("amd", "generic", "gke", "gpushare", "volcano")}
NODE = "node-1"
PATIENCE_S = 20.0
NOBODY = ("default", "nobody", "c0")  # a pod that the API server does not know
WRITES = {"PUT": "PUT PATCH"}  # what they put, ours patches


class Stage:
    def __init__(self, case: Case, root: Path, server: ApiServer, end: Kubelet) -> None:
        self.case = case
        self.root = root
        self.server = server
        self.end = end
        self.holders: dict[tuple[str, str, str], list[str]] = {}
        self.machine: Machine
        self._resources: Socket | None = None

    @property
    def plugins(self) -> Path:
        return self.root / "dp"

    @property
    def pod_resources(self) -> Path:
        return self.root / "pr" / "kubelet.sock"

    @property
    def status_socket(self) -> Path:
        return self.root / "fl.sock"

    @property
    def stream(self) -> Followed:
        (followed,) = self.end.followed.values()
        return followed

    @property
    def resource(self) -> str:
        (name,) = self.end.followed
        return name

    def words(self) -> list[str]:
        """The recording's own command line, without the name of its program."""
        places = {"KPORT": "10250", "PORT": str(self.server.port), "/recorded": str(self.root)}
        return [_replaced(word, places) for word in self.case.inputs.argv[1:]]

    def env(self) -> dict[str, str]:
        recorded = {key: _replaced(value, {"/recorded": str(self.root)}) for key, value in self.case.inputs.env.items()}
        # Theirs takes the host's name for the node's. Ours does too, unless it is told.
        return {"NODE_NAME": self.case.inputs.hostname, **recorded} if self.case.inputs.hostname else recorded

    # --- What the kubelet does --------------------------------------------------------------------------------------

    async def serve_pod_resources(self) -> None:
        def listed() -> pr.ListPodResourcesResponse:
            pods = dict.fromkeys(who[:2] for who in self.holders)
            return pr.ListPodResourcesResponse(pod_resources=[self._shown(*pod) for pod in pods])

        def get(name: str, namespace: str) -> pr.PodResources:
            return self._shown(namespace, name)

        services = podresources_service(listed, get, pr.AllocatableResourcesResponse, None)
        self._resources = Socket(self.pod_resources, self.pod_resources.with_name("scratch"), services)
        await self._resources.start()

    async def close(self) -> None:
        if self._resources is not None:
            await self._resources.stop()

    def _shown(self, namespace: str, pod: str) -> pr.PodResources:
        containers = [
            pr.ContainerResources(
                name=who[2], devices=[pr.ContainerDevices(resource_name=self.resource, device_ids=ids)]
            )
            for who, ids in self.holders.items()
            if who[:2] == (namespace, pod)
        ]
        return pr.PodResources(name=pod, namespace=namespace, containers=containers)

    async def listed(self) -> dp.ListAndWatchResponse:
        await self.end.until(lambda: bool(self.end.followed and self.stream.lists))
        return self.stream.lists[-1]

    def choose(self, asked: list[list[str] | int]) -> list[list[str]]:
        """The ids of each container: the free ones that come first, or what the recording made up."""
        ids = [one.ID for one in self.stream.lists[-1].devices]
        held = {one for taken in self.holders.values() for one in taken}
        free = iter([one for one in ids if one not in held])
        known = set(ids)
        chosen = []
        for wanted in asked:
            made_up = not isinstance(wanted, int) and not known.issuperset(wanted)
            count = wanted if isinstance(wanted, int) else len(wanted)
            chosen.append(
                list(wanted) if made_up and not isinstance(wanted, int) else [next(free) for _ in range(count)]
            )
        return chosen

    async def prefer(self, size: int) -> list[str]:
        """What a kubelet that asks is told to take; all that is healthy and free is there to choose from."""
        held = {one for taken in self.holders.values() for one in taken}
        devices = self.stream.lists[-1].devices
        free = [one.ID for one in devices if one.health == "Healthy" and one.ID not in held]
        wanted = dp.ContainerPreferredAllocationRequest(available_deviceIDs=free, allocation_size=size)
        request = dp.PreferredAllocationRequest(container_requests=[wanted])
        answer = await self.ask("GetPreferredAllocation", request, dp.PreferredAllocationResponse)
        assert not isinstance(answer, str), f"a preference is an error: {answer}"
        (container,) = answer.container_responses
        return list(container.deviceIDs) or free[:size]

    async def allocate(self, ids: list[list[str]]) -> Any:
        """The answer, or the text of the error."""
        wanted = [dp.ContainerAllocateRequest(devices_ids=one) for one in ids]
        return await self.ask("Allocate", dp.AllocateRequest(container_requests=wanted), dp.AllocateResponse)

    async def ask(self, method: str, request: Any, reply: type[Any]) -> Any:
        try:
            return await self.stream.ask(method, request, reply)
        except grpc.aio.AioRpcError as error:
            return f"{error.code().name}: {error.details()}"

    # --- What the API server holds ----------------------------------------------------------------------------------

    def annotations(self) -> dict[str, dict[str, str]]:
        pods = self.server.store.all("pods", "", "")
        return {f"{one['metadata']['namespace']}/{one['metadata']['name']}": _noted(one) for one in pods}

    def nodes(self) -> dict[str, Any]:
        return {one["metadata"]["name"]: one for one in self.server.store.all("nodes", "", "")}


@asynccontextmanager
async def staged(case: Case, root: Path) -> AsyncIterator[Stage]:
    inputs = case.inputs
    for name in ("dp", "pr"):
        (root / name).mkdir()
    async with api_server() as server, kubelet(root / "dp") as end:
        stage = Stage(case, root, server, end)
        for node in inputs.api_objects.nodes:
            server.store.put("nodes", node)
        for pod in inputs.api_objects.pods:
            server.store.put("pods", pod, pod["metadata"]["namespace"])
        for failure in inputs.api_script:
            methods = WRITES.get(failure.method, failure.method)
            fault = Fault(code=failure.status, message=failure.message, methods=methods, path=failure.path)
            # Theirs has exited before the failures were over. Ours goes on, and must not see their end.
            server.faults += [fault] * (failure.times if case.outputs.alive is not False else 1000)
        server.selects = case.case != "041-other-node-pod"
        (root / "kubeconfig").write_text(json.dumps(_kubeconfig(server.url)))
        (root / "config.yaml").write_text(inputs.config_text or "")
        end.refuses = inputs.kubelet_refuses_register_with
        if inputs.stale_socket_file_before_start:
            leave_socket(stage.plugins / f"{_socket_of(case)}.sock")
        if not inputs.kubelet_absent:
            await end.serve()
        await stage.serve_pod_resources()
        with driver_of(case).installed(root / "machine") as stage.machine:
            try:
                yield stage
            finally:
                await stage.close()


def driver_of(case: Case) -> Driver:
    inputs = case.inputs
    numa = inputs.pci_numa_node or {}
    gpus = tuple(
        Gpu(
            uuid=card.uuid,
            name=card.name,
            bus_id=card.bus_id,
            minor=card.minor,
            memory_total=card.memory_bytes,
            memory_free=card.memory_bytes,
            events=0 if card.no_events else ALL_EVENTS,
            numa_node=int(numa[address]) if (address := card.bus_id.lower().removeprefix("0000")) in numa else None,
        )
        for card in inputs.gpus
    )
    faults = (NvmlFault("nvmlInit", inputs.nvml_init_return),) if inputs.nvml_init_return else ()
    return Driver(gpus=gpus, faults=faults)


def leave_socket(path: Path) -> None:
    """As a process does that was killed."""
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))


@contextmanager
def environment(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The recording's, for a daemon in this process."""
    with monkeypatch.context() as patched:
        for name in ("KUBECONFIG", "NODE_NAME", "KUBERNETES_SERVICE_HOST", "DP_DISABLE_HEALTHCHECKS"):
            patched.delenv(name, raising=False)
        for name, value in stage.env().items():
            patched.setenv(name, value)
        yield


async def eventually(condition: Callable[[], bool], patience_s: float = PATIENCE_S) -> bool:
    """Whether it came true. What did not is seen when the outcome is compared."""
    try:
        async with asyncio.timeout(patience_s):
            while not condition():  # noqa: ASYNC110 - a store, a list or a file: not all of them call
                await asyncio.sleep(0.005)
    except TimeoutError:
        return False
    return True


def _socket_of(case: Case) -> str:
    return {"mini": "doslab", "gpushare": "aliyungpushare", "volcano": "volcano"}[case.peer]


def _kubeconfig(url: str) -> dict[str, Any]:
    return {
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": "fake-token"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }


def _noted(thing: dict[str, Any]) -> dict[str, str]:
    return dict(thing["metadata"].get("annotations") or {})


def _replaced(text: str, places: dict[str, str]) -> str:
    for mark, value in places.items():
        text = text.replace(mark, value)
    return text

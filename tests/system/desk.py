"""A scheduler on paper: it chooses devices for pods and writes that on them, as each dialect's own scheduler does.

Pods stand in a fake API server and run in the stand-in kubelet. The daemon has what `fairlead doslab` and the others
mean, on simulated cards.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml
from tests.apiserver.server import ApiServer, api_server
from tests.system.rig import Node, running

from fairlead.dialects.invocation import Invocation
from fairlead.model.names import ResourceName, SlotId
from fairlead.model.resource import Resource
from fairlead.testing import Kubelet, Pod

NODE = "n1"
TOLD = "TOLD_DEVICE"  # in every container, whatever the dialect says
FLEET = """
description: four cards
devices:
  - {count: 4, vendor: nvidia, model: T4, memory: 16GiB}
"""
GEM = {"doslab.io/gem-scheduler-ip": "10.0.0.9", "doslab.io/gem-podmanager-port": "50051"}


@dataclass(frozen=True)
class Dialect:
    name: str
    resource: str
    device: str  # annotation that names the card
    by_id: bool
    time: str
    assigned: str
    args: tuple[str, ...] = ()
    unit: str = "1GiB"  # as the tests cut: few slots are enough to see everything
    others: Mapping[str, str] = field(default_factory=dict)
    unassigned: Mapping[str, str] = field(default_factory=dict)

    def mean(self) -> dict[str, Any]:
        """Its configuration."""
        read: Callable[[Sequence[str], Mapping[str, str]], Invocation] = import_module(
            f"fairlead.dialects.{self.name}.command"
        ).read_command_line
        return dict(read(self.args, {"NODE_NAME": NODE}).translate().config)


DOSLAB = Dialect(
    "doslab",
    "doslab.io/gpu-memory",
    "doslab.io/gpu-uuid",
    by_id=True,
    time="doslab.io/gpu-assume-time",
    assigned="doslab.io/gpu-assigned",
    others=GEM,
    unassigned={"doslab.io/gpu-assigned": "false"},
)
GPUSHARE = Dialect(
    "gpushare",
    "aliyun.com/gpu-mem",
    "ALIYUN_COM_GPU_MEM_IDX",
    by_id=False,
    time="ALIYUN_COM_GPU_MEM_ASSUME_TIME",
    assigned="ALIYUN_COM_GPU_MEM_ASSIGNED",
    unassigned={"ALIYUN_COM_GPU_MEM_ASSIGNED": "false"},
)
VOLCANO = Dialect(
    "volcano",
    "volcano.sh/gpu-memory",
    "volcano.sh/gpu-index",
    by_id=False,
    time="volcano.sh/predicate-time",
    assigned="volcano.sh/gpu-assigned",
)
DIALECTS = (DOSLAB, GPUSHARE, VOLCANO)


class Desk:
    """What a test holds."""

    def __init__(self, dialect: Dialect, node: Node, server: ApiServer) -> None:
        self.dialect, self.node, self.server = dialect, node, server
        self._times = itertools.count(1_000_000_000)

    @property
    def cards(self) -> list[str]:
        return self.node.ids()

    def word(self, card: int) -> str:
        return self.cards[card] if self.dialect.by_id else str(card)

    def promise(self, card: int, time: int | None = None) -> dict[str, str]:
        dialect = self.dialect
        at = str(next(self._times) if time is None else time)
        return {dialect.device: self.word(card), dialect.time: at, **dialect.unassigned, **dialect.others}

    def write(
        self,
        name: str,
        containers: Mapping[str, int],
        annotations: Mapping[str, str],
        *,
        init: Mapping[str, int] | None = None,
        node: str = NODE,
        phase: str = "Pending",
    ) -> None:
        """The pod as the API server has it once it is bound."""
        spec = {
            "nodeName": node,
            "containers": [self._container(*each) for each in containers.items()],
            "initContainers": [self._container(*each) for each in (init or {}).items()],
        }
        meta = {"name": name, "namespace": "default", "uid": f"uid-{name}", "annotations": dict(annotations)}
        self.server.store.put("pods", {"metadata": meta, "spec": spec, "status": {"phase": phase}}, "default")

    def _container(self, name: str, amount: int) -> dict[str, Any]:
        limits = {self.dialect.resource: str(amount)} if amount else {}
        return {"name": name, "resources": {"limits": limits, "requests": limits}}

    async def bind(
        self, name: str, containers: Mapping[str, int], card: int, *, init: Mapping[str, int] | None = None
    ) -> Pod:
        """A pod that was promised a card, as the kubelet then runs it."""
        self.write(name, containers, self.promise(card), init=init)
        return await self.admit(name, containers, init=init)

    async def admit(self, name: str, containers: Mapping[str, int], *, init: Mapping[str, int] | None = None) -> Pod:
        resource = self.dialect.resource
        amounts = [{key: {resource: n} if n else {} for key, n in part.items()} for part in (containers, init or {})]
        pod = await self.node.kubelet.run_pod(name, amounts[0], init=amounts[1])
        if pod.phase == "Failed":
            self.set_phase(name, "Failed")
        return pod

    def set_phase(self, name: str, phase: str) -> None:
        pod = self.server.store.get("pods", name, "default")
        self.server.store.put("pods", {**pod, "status": {"phase": phase}}, "default")

    async def end(self, pod: Pod) -> None:
        await self.node.kubelet.delete_pod(pod)
        self.server.store.remove("pods", pod.name, "default")

    def annotations(self, name: str) -> dict[str, str]:
        found: dict[str, str] = self.server.store.get("pods", name, "default")["metadata"]["annotations"]
        return found

    def told(self, pod: Pod, container: str = "main") -> int:
        """The card that a container was told of."""
        return self.cards.index(pod.containers[container].env[TOLD])

    def lies_on(self, pod: Pod, container: str = "main") -> set[int]:
        """The cards that its slots are of."""
        owned = {slot.id: slot for slot in self.offered.slots}
        return {self.cards.index(owned[SlotId(s)].device) for s in pod.containers[container].devices[self.offered.name]}

    @property
    def offered(self) -> Resource:
        return self.node.daemon.supervisor.endpoints[ResourceName(self.dialect.resource)].device_list.resource

    async def marked(self, name: str) -> dict[str, str]:
        """Its annotations, once they say that it has its devices."""
        async with asyncio.timeout(20):
            while self.annotations(name).get(self.dialect.assigned) != "true":
                await self.server.store.news()
        return self.annotations(name)


@asynccontextmanager
async def desk(dialect: Dialect, kubelet: Kubelet, root: Path, *, fleet: str = FLEET) -> AsyncIterator[Desk]:
    async with api_server() as server:
        meta = {"name": NODE, "annotations": {}, "labels": {}}
        server.store.put("nodes", {"metadata": meta, "status": {"capacity": {}, "allocatable": {}}})
        config = configure(dialect, kubelet, root, server, fleet)
        async with running(kubelet, root, yaml.safe_dump(config)) as node:
            total = 4 * 16
            await node.ready(dialect.resource, total)
            yield Desk(dialect, node, server)


def configure(dialect: Dialect, kubelet: Kubelet, root: Path, server: ApiServer, fleet: str = FLEET) -> dict[str, Any]:
    (root / "fleet.yaml").write_text(fleet)
    config = dialect.mean()
    (rule,) = config["rules"]
    rule["memory"]["unit"] = dialect.unit
    rule["env"] = {**rule["env"], TOLD: "{ids}"}
    rule["assign"]["wait"] = "200ms"
    config["backends"] = [{"kind": "sim", "fleet": str(root / "fleet.yaml")}]
    config["kubelet"] |= {"directory": str(kubelet.plugin_dir), "podResources": str(kubelet.podresources_socket)}
    config["status"] = {"socket": str(root / "fl.sock")}
    config["cluster"] = {**config.get("cluster", {}), "node": NODE, "server": server.url}
    config["health"] = {"probeInterval": "20ms", "hold": "20ms", "probation": "20ms", "cleanProbes": 1}
    return config

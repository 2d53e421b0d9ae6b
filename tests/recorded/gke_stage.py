"""A node as a recording of Google's plugin had it: its machine, config files, API server and metadata server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from fairlead.dialects.gke.command import GkeInvocation, read_command_line
from tests.apiserver.metadata import metadata_server
from tests.apiserver.server import ApiServer, api_server
from tests.nvml import Driver, Gpu, gpus
from tests.nvml import Node as Machine
from tests.nvml.driver import Fault
from tests.nvml.models import partitioned
from tests.nvml.values import ALL_EVENTS
from tests.peers.nvidia.kubelet import Kubelet, kubelet
from tests.vectors.gke import Case, Inputs

NODE = "node-1"
TELL = "#!/bin/sh\ncat > {root}/asking && mv {root}/asking {root}/asked\n"
CONTROL = {"ok": f"{TELL}echo 100.0\n", "fail": f"{TELL}exit 1\n"}


class Stage:
    def __init__(self, case: Case, root: Path, server: ApiServer, end: Kubelet, machine: Machine) -> None:
        self.case, self.root, self.server, self.end, self.machine = case, root, server, end, machine
        self.metadata = ""  # host and port

    @property
    def plugins(self) -> Path:
        return self.root / "dp"

    def env(self) -> dict[str, str]:
        return {**self.case.inputs.env, "KUBECONFIG": str(self.root / "kubeconfig")}

    def words(self) -> list[str]:
        """The recording's command line, with our places added."""
        said = [word.replace("/recorded", str(self.root)) for word in self.case.inputs.argv[1:]]
        ours = {
            "status-socket": self.root / "fl.sock",
            "pod-resources": self.root / "pr.sock",
            "host-root": self.machine.root,
            "driver-root": self.machine.root,
            "mps-control": self.root / "mps-control",
            "metadata-server": self.metadata,
        }
        return [*said, *(f"--{name}={place}" for name, place in ours.items())]

    def read(self) -> GkeInvocation:
        return read_command_line(self.words(), self.env())

    def node(self) -> dict[str, Any]:
        return self.server.store.get("nodes", NODE)

    def mps_asked(self) -> str | None:
        """What MPS's control got on its standard input."""
        file = self.root / "asked"
        return file.read_text().strip() if file.exists() else None

    def events(self) -> list[dict[str, Any]]:
        return self.server.store.all("events", "default", "")


def config_of(stage: Stage) -> dict[str, Any]:
    """Only times are changed: nothing comes back while a test looks on."""
    config: dict[str, Any] = dict(stage.read().translate().config)
    (backend,) = config["backends"]
    backend["health"] = {**backend["health"], "eventWait": "30ms"}
    return config | {"health": {"hold": "1h"}}


@asynccontextmanager
async def staged(case: Case, root: Path) -> AsyncIterator[Stage]:
    for name in ("dp", "etc"):
        (root / name).mkdir()
    inputs = case.inputs
    for name, text in (("gpu_config.json", inputs.gpu_config_text), ("divisor.txt", inputs.fraction_divisor_text)):
        if text is not None:
            (root / "etc" / name).write_text(text)
    if inputs.mps_control_binary is not None:
        program = root / "mps-control"
        program.write_text(CONTROL[inputs.mps_control_binary].format(root=root))
        program.chmod(0o755)
    async with api_server() as server, kubelet(root / "dp") as end, metadata_server(NODE.encode()) as host:
        if inputs.node is not None:
            server.store.put("nodes", inputs.node)
        server.write_kubeconfig(root / "kubeconfig")
        if inputs.kubelet_sock_at_start == "present":
            await end.serve()
        with driver_of(inputs).installed(root / "machine") as machine:
            stage = Stage(case, root, server, end, machine)
            stage.metadata = host
            if not inputs.nvidia_caps_nodes_present:
                for path in (machine.root / "dev/nvidia-caps").iterdir():
                    path.unlink()
            yield stage


def driver_of(inputs: Inputs) -> Driver:
    cards = tuple(_gpu(inputs, number) for number in range(len(inputs.gpus)))
    names = [name for name in inputs.dev_files if not name[6:].isdigit()]
    missing = {f"nvidia{gpu.minor}" for gpu in cards} - set(inputs.dev_files)
    version: dict[str, Any] = {"driver_version": inputs.driver_version} if inputs.driver_version else {}
    nodes = tuple(f"/dev/{name}" for name in (inputs.dev_files if missing else names))
    faults = (Fault("nvmlInit", inputs.nvml_init_return),) if inputs.nvml_init_return else ()
    driver = Driver(gpus=cards, dev_nodes=nodes, gpu_nodes=not missing, faults=faults, **version)
    for gpu, instances in (inputs.mig_capabilities or {}).items():
        for gi, minors in instances.items():
            names = [f"gpu{gpu}/gi{gi}/access", f"gpu{gpu}/gi{gi}/ci0/access"]
            assert [driver.minors()[name] for name in names] == minors, (gpu, gi)
    return driver


def _gpu(inputs: Inputs, number: int) -> Gpu:
    card = inputs.gpus[number]
    assert card.index == number
    facts: dict[str, Any] = {"uuid": card.uuid, "name": card.name, "bus_id": card.bus_id, "minor": card.minor}
    facts["numa_node"] = int(inputs.pci_numa_node[card.bus_id.lower().removeprefix("0000")])
    instances = (inputs.mig_capabilities or {}).get(str(card.minor), {})
    if not instances:
        memory: dict[str, Any] = {"memory_total": card.memory_bytes, "memory_free": card.memory_bytes}
        return Gpu(**facts, **memory, events=0 if card.no_events else ALL_EVENTS)
    size = json.loads(inputs.gpu_config_text or "")["GPUPartitionSize"]
    size = size if size in {"1g.5gb", "3g.20gb"} else "3g.20gb"  # what is there, whatever was asked for
    whole = msgspec.structs.replace(gpus("A100", 1)[0], **facts)
    cut = partitioned(whole, *[size] * len(instances))
    migs = [
        msgspec.structs.replace(mig, gi=int(gi)) for mig, gi in zip(cut.migs, sorted(instances, key=int), strict=True)
    ]
    return msgspec.structs.replace(cut, migs=tuple(migs))

"""`fairlead volcano --gpu-strategy=number`: whole GPUs that Volcano's scheduler has chosen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.apiserver.server import ApiServer, api_server
from tests.system.rig import Node, running

from fairlead.dialects.volcano.command import NUMBER, read_command_line
from fairlead.testing import Kubelet

NODE = "n1"
SAME = "devices: [{count: 3, vendor: nvidia, model: T4, memory: 16GiB}]\n"
MIXED = "devices: [{vendor: nvidia, model: T4, memory: 16GiB}, {count: 2, vendor: nvidia, model: A10, memory: 24GiB}]\n"


@asynccontextmanager
async def cards(fleet: str, kubelet: Kubelet, root: Path) -> AsyncIterator[tuple[Node, ApiServer]]:
    (root / "fleet.yaml").write_text(f"description: cards\n{fleet}")
    config: dict[str, Any] = read_command_line(["--gpu-strategy=number"], {"NODE_NAME": NODE}).translate().config
    config["backends"] = [{"kind": "sim", "fleet": str(root / "fleet.yaml")}]
    config["rules"][0]["env"]["TOLD"] = "{indexes}"
    config["kubelet"] |= {"directory": str(kubelet.plugin_dir), "podResources": str(kubelet.podresources_socket)}
    config["status"] = {"socket": str(root / "fl.sock")}
    async with api_server() as server:
        server.store.put("nodes", {"metadata": {"name": NODE, "annotations": {"gpu": "locked"}}, "status": {}})
        config["cluster"] |= {"node": NODE, "server": server.url}
        async with running(kubelet, root, yaml.safe_dump(config)) as node:
            await node.ready(NUMBER, 3)
            yield node, server


def write(server: ApiServer, name: str, count: int, **annotations: str) -> None:
    keys = {f"volcano.sh/{key.replace('_', '-')}": text for key, text in annotations.items()}
    container = {"name": "main", "resources": {"limits": {NUMBER: str(count)}}}
    meta = {"name": name, "namespace": "default", "uid": f"uid-{name}", "annotations": keys}
    spec = {"nodeName": NODE, "containers": [container]}
    server.store.put("pods", {"metadata": meta, "spec": spec, "status": {"phase": "Pending"}}, "default")


@pytest.mark.parametrize(("fleet", "total"), [(SAME, "16384"), (MIXED, "16384,24576")])
async def test_a_pod_gets_the_gpus_that_were_chosen(fleet: str, total: str, kubelet: Kubelet, kubelet_root: Path):
    async with cards(fleet, kubelet, kubelet_root) as (node, server):
        write(server, "two", 2, gpu_index="0,2", predicate_time="1")
        pod = await node.kubelet.run_pod("two", {"main": {NUMBER: 2}})
        env = pod.containers["main"].env
        assert (env["TOLD"], env["VOLCANO_GPU_ALLOCATED"]) == ("0,2", "2")
        assert env["VOLCANO_GPU_MEMORY_TOTAL"] == total
        async with asyncio.timeout(20):
            while (
                server.store.get("pods", "two", "default")["metadata"]["annotations"].get("volcano.sh/gpu-assigned")
                != "true"
            ):
                await server.store.news()
            while "gpu" in server.store.get("nodes", NODE)["metadata"]["annotations"]:
                await server.store.news()

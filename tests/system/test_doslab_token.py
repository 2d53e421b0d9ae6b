"""A token that was given on the command line: the API server hears it, and nobody else."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from tests.apiserver.server import api_server
from tests.nvml import Driver, gpus
from tests.system.process import PATIENCE_S, program
from tests.unit.backends.nvidia.drivers import installed

from fairlead.observe.control import ask
from fairlead.testing import Kubelet

SECRET = "sesame-open"
COUNT, CORE = "doslab.io/gpu-count", "doslab.io/gpu-core"


async def test_the_token_reaches_the_server_and_no_file_journal_or_status(kubelet: Kubelet, kubelet_root: Path):
    async with api_server() as server:
        server.tokens = {SECRET}
        server.store.put("nodes", {"metadata": {"name": "n1"}, "status": {"capacity": {}, "allocatable": {}}})
        with installed(Driver(gpus=gpus("A100", 2)), kubelet_root) as machine:
            places = [f"--plugin-dir={kubelet.plugin_dir}", f"--pod-resources={kubelet.podresources_socket}"]
            words = [
                "doslab",
                "-masterUrl",
                server.url,
                "-token",
                SECRET,
                *places,
                f"--status-socket={kubelet_root}/s.sock",
            ]
            async with program("-m", "fairlead", *words, env={"NODE_NAME": "n1", **machine.env}) as daemon:
                async with asyncio.timeout(PATIENCE_S):
                    while server.store.get("nodes", "n1")["status"]["capacity"].get(COUNT) != "2":
                        await server.store.news()
                assert server.store.get("nodes", "n1")["status"]["allocatable"] == {COUNT: "2", CORE: "200"}
                status = await asyncio.to_thread(ask, kubelet_root / "s.sock", {"ask": "status"})
                files = [path for path in kubelet.plugin_dir.iterdir() if path.is_file()]
                assert any("-token ***" in path.read_text() for path in files)  # the lock, for whoever comes second
                told = [json.dumps(status), *daemon.lines, *(path.read_text() for path in files)]
                assert not any(SECRET in text for text in told)

"""`fairlead generic` as a process: its config file changes while it runs, for better and for worse."""

from __future__ import annotations

import re
import signal
import sys
from pathlib import Path
from typing import Any

import yaml
from tests.peers.nvidia.kubelet import Kubelet, kubelet

import fairlead


def device(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "groups": [{"paths": [{"path": f"/dev/{name}", **more}]}]}


def listed(end: Kubelet) -> set[str]:
    return {name for name, followed in end.followed.items() if followed.lists}


async def test_a_config_file_with_a_mistake_changes_nothing_and_one_without_is_taken(kubelet_root: Path):
    config = kubelet_root / "config.yaml"

    def write(*devices: dict[str, Any]) -> None:
        beside = kubelet_root / "new.yaml"
        beside.write_text(yaml.safe_dump({"listen": "127.0.0.1:0", "devices": list(devices)}))
        beside.replace(config)

    (kubelet_root / "dp").mkdir()
    write(device("null"))
    places = {"config": "config.yaml", "plugin-directory": "dp", "status-socket": "fl.sock", "pod-resources": "pr.sock"}
    words = [f"--{flag}={kubelet_root / place}" for flag, place in places.items()]
    source = str(Path(fairlead.__file__).parents[1])
    async with kubelet(kubelet_root / "dp") as end:
        await end.serve()
        await end.start(
            [sys.executable, "-m", "fairlead", "generic", *words], {"PATH": "/usr/bin", "PYTHONPATH": source}
        )
        await end.until(lambda: listed(end) == {"squat.ai/null"})

        write(device("null"), device("Zero"))
        end.signal(signal.SIGHUP)
        await end.until(lambda: "'Zero' does not match" in end.log)
        assert re.search(rf"{config}: line \d+, devices\[1\].name", end.log)
        assert listed(end) == {"squat.ai/null"}

        write(device("null"), device("zero"), device("full", permissions="x"))
        end.signal(signal.SIGHUP)
        await end.until(lambda: listed(end) == {"squat.ai/null", "squat.ai/zero"})
        assert "full is left out" in end.log
        assert len(end.registrations) == 2  # what serves is not disturbed
        assert await end.stop() == 0
        assert end.sockets() == []

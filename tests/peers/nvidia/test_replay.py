"""NVIDIA's own plugin, on our simulated driver and under our kubelet, gives the answers that were recorded elsewhere.

So the driver, the private root and the kubelet can be trusted when they judge ours.
"""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from tests.peers.nvidia.compare import differences
from tests.peers.nvidia.place import needs_root
from tests.peers.nvidia.programs import nvidia_plugin
from tests.peers.nvidia.replay import replay
from tests.peers.nvidia.versions import as_v0_19
from tests.vectors import nvidia

pytestmark = [
    pytest.mark.go,
    pytest.mark.timeout(600),  # the first of them may have to build the plugin
    pytest.mark.skipif(needs_root() is not None, reason=str(needs_root())),
]

RECORDINGS = (
    "008-default-dgx1v-8xv100",
    "015-default-h100x8-island-567",  # requests that crash it
    "023-default-zero-gpus",
    "030-mig-single-a100x1-mig-7x1g",
    "033-mig-mixed-a100x2-mig-2x3g-each",
    "043-mig-single-a100x2-mig-on-off",
    "087-init-driver-not-loaded-fail-true",
    "096-wsl-specs-index",
    "101-tegra-no-nvml-root",
    "113-fault-DeviceGetName-15",
    "116-fault-DeviceGetTopologyCommonAncestor-3",
    "142-dls-envvar+volume-mounts+cdi-annotations+cdi-cri-index",
    "229-file-version-v2",
    "277-ts-rename-default-fail",
    "338-mps-ok-specs-index",
    "360-extra-all-cdi-nodes",
    "369-imex-cdi",
    "377-cdi-full-driver-drm",
    "387-cdi-mig-mixed-index",
    "437-health-default",
    "439-health-gpu-lost",
    "456-health-mig-mixed",
    "464-life-kubelet-restart-mig",
    "471-life-config-change-sighup",
    "472-life-config-bad-sighup",
)


@pytest.mark.parametrize("name", RECORDINGS)
async def test_the_answers_are_those_of_the_recording(name: str) -> None:
    program = await asyncio.to_thread(nvidia_plugin)
    vector = nvidia()[name]
    recorded = as_v0_19(vector.result)
    assert differences(recorded, await replay(program, msgspec.structs.replace(vector, result=recorded))) == []


def test_a_difference_is_told() -> None:
    recorded = nvidia()["001-default-t4x1"].result
    other = msgspec.structs.replace(recorded, exit_code=3, sockets=[])
    assert differences(recorded, other) == [
        "exit_code: recorded 0, seen 3",
        "sockets: recorded ['nvidia-gpu.sock'], seen []",
    ]

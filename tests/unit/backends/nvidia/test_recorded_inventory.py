"""The devices that NVIDIA's own plugin listed, found by our scan of the same driver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.nvml import from_recording
from tests.unit.backends.nvidia.drivers import installed, opened
from tests.vectors import drivers, nvidia
from tests.vectors.types import Resource, Vector

from fairlead.backends.nvidia import library
from fairlead.model.device import Device

VISIBLE = "NVIDIA_VISIBLE_DEVICES"
CONTROL_NODES = {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"}


def chosen(vector: Vector) -> dict[str, str]:
    """What the plugin said that it understood."""
    flags = (vector.result.effective_config or {})["flags"]
    return {"mig": flags["migStrategy"], "discovery": flags["deviceDiscoveryStrategy"] or "auto"}


def serving() -> list[Any]:
    """Recordings that differ only in what is done with the devices have one look in common."""
    groups: dict[tuple[str, ...], list[Vector]] = {}
    for vector in nvidia().values():
        if vector.result.state == "serving" and vector.result.resources:
            groups.setdefault((vector.driver, *chosen(vector).values()), []).append(vector)
    return [pytest.param(vectors, id=vectors[0].file) for vectors in groups.values()]


def listed(resources: dict[str, Resource]) -> dict[str, list[int]]:
    return {
        device["ID"].partition("::")[0]: device["topology"] or []
        for resource in resources.values()
        for device in resource.devices or ()
    }


@pytest.mark.parametrize("vectors", serving())
async def test_the_same_devices(vectors: list[Vector], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = from_recording(drivers()[vectors[0].driver])
    monkeypatch.setattr(library, "can_load", lambda _: driver.wsl)
    if driver.library_path is None:
        # By its name the loader would find the one that another test has loaded into this process.
        monkeypatch.setattr(library, "NAME", "libnvidia-ml.so.none")
    with installed(driver, tmp_path) as node:
        async with opened(node, **chosen(vectors[0])) as backend:
            found = {device.id: device for device in (await backend.discover()).devices}
    for vector in vectors:
        assert {one.id: list(one.numa_nodes) for one in found.values()} == listed(vector.result.resources), vector.file
        for resource in vector.result.resources.values():
            for allocation in resource.allocate or ():
                if allocation.response is not None and not allocation.variants:
                    for ids, answer in zip(allocation.request, allocation.response, strict=True):
                        check_answer(vector, ids, answer, found)


def check_answer(vector: Vector, ids: list[str], answer: dict[str, Any], found: dict[str, Device]) -> None:
    """What a container got tells how the plugin saw the device."""
    asked = [found[one.partition("::")[0]] for one in ids if one.partition("::")[0] in found]
    visible = (answer.get("envs") or {}).get(VISIBLE, "")
    by_index = (vector.result.effective_config or {})["flags"]["plugin"]["deviceIDStrategy"] == "index"
    if visible and not visible.startswith("/") and by_index:
        assert set(visible.split(",")) == {device.index for device in asked}
    nodes = {node["container_path"] for node in answer.get("devices") or ()} - CONTROL_NODES
    nodes = {path for path in nodes if "imex" not in path}
    if nodes:
        assert nodes == {node.path for device in asked for node in device.nodes}

"""Who holds what: what the kubelet's checkpoint says of units, and what is not known."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.clock import FakeClock

from fairlead.app.holders import Holders
from fairlead.config.spec import Config, KubeletSpec
from fairlead.kubelet.checkpoint import NAME
from fairlead.model.names import ResourceName
from fairlead.standin.checkpoint import Checkpoint, Entry, encode

GPU = ResourceName("example.com/gpu")


async def on_disk(directory: Path) -> frozenset[ResourceName] | None:
    holders = Holders(FakeClock())
    try:
        await holders.read(Config(kubelet=KubeletSpec(directory=str(directory), pod_resources="")), checkpoint=True)
        return holders.on_disk()
    finally:
        holders.close()


async def test_the_checkpoint_names_resources_that_pods_hold(tmp_path: Path):
    (tmp_path / NAME).write_text(encode(Checkpoint([Entry("uid", "main", GPU, {-1: ["a"]}, b"")], {GPU: ["a"]})))
    assert await on_disk(tmp_path) == frozenset({GPU})


async def test_without_a_checkpoint_no_pod_holds_anything(tmp_path: Path):
    assert await on_disk(tmp_path) == frozenset()


@pytest.mark.parametrize("text", ["", "{", '{"Data": {"PodDeviceEntries": 7}}'])
async def test_a_checkpoint_that_cannot_be_read_may_name_any_pod(text: str, tmp_path: Path):
    (tmp_path / NAME).write_text(text)
    assert await on_disk(tmp_path) is None

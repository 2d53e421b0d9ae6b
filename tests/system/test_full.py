"""A plugin directory that is full: what cannot be served says why, and is served as soon as there is room."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.system.rig import GPU, SIM, Node, running

from fairlead.testing import Kubelet

FIRST = "example.com/first"
SPLIT = SIM.replace(
    "  - resource: nvidia.com/gpu", f"  - {{match: {{index: [0, 1]}}, resource: {FIRST}}}\n  - resource: nvidia.com/gpu"
)
INODES = 64


@pytest.fixture
def small(kubelet_root: Path) -> Iterator[Path]:
    """A file system with few inodes."""
    place = kubelet_root / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size=1m,nr_inodes={INODES}", "none", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("only root can mount a small file system, and not everywhere")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def _fill(directory: Path) -> list[Path]:
    made: list[Path] = []
    for number in range(2 * INODES):
        path = directory / f"junk-{number}"
        try:
            path.touch()
        except OSError as error:
            assert error.errno == errno.ENOSPC
            return made
        made.append(path)
    raise AssertionError("it does not get full")


async def test_a_full_directory_is_told_as_such_and_left_behind(small: Path, kubelet: Kubelet, kubelet_root: Path):
    text = f"{SIM}\nkubelet: {{directory: {small}, podResources: ''}}\nstatus: {{socket: {kubelet_root}/fl.sock}}\n"
    junk = _fill(small)
    junk.pop().unlink()  # for the lock of the daemon
    async with running(kubelet, kubelet_root, text) as node:
        fact = await node.until_fact("backoff", resource=GPU)
        assert "No space left on device). Make room there" in fact.keys["reason"]
        junk.pop().unlink()  # enough for the lock of the resource, and not for its socket
        socket = small / "fairlead-nvidia.com_gpu.sock"
        await node.until(lambda: any(f"{socket}: No space left" in str(fact.keys) for fact in node.facts))
        junk.pop().unlink()
        await node.until(lambda: any("waiting for the kubelet" in str(fact.keys) for fact in node.facts))
        assert socket.exists()
        assert not any("already served" in str(fact.keys) for fact in node.facts)


@pytest.mark.parametrize("broken", ["fairlead.fronts.deviceplugin.endpoint.listen", "os.pwrite", "os.ftruncate"])
async def test_what_failed_once_is_no_obstacle_later(
    broken: str, kubelet: Kubelet, kubelet_root: Path, monkeypatch: pytest.MonkeyPatch
):
    def full(*_args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async with running(kubelet, kubelet_root, SIM) as node:
        await node.ready()
        with monkeypatch.context() as patch:
            patch.setattr(broken, full)
            node.write(SPLIT)
            await node.reload()
            if broken.endswith("listen"):
                await node.until(lambda: _backoffs(node) > 2)
        await node.ready(FIRST, 2)
        assert not any("already served" in str(fact.keys) for fact in node.facts)


def _backoffs(node: Node) -> int:
    return sum(fact.kind == "backoff" and fact.keys.get("resource") == FIRST for fact in node.facts)

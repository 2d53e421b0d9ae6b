"""AMD's labels on a true API server: with the rights of the guide, and with those of AMD's own manifest."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.cluster.rbac import FEATURES, Rule
from tests.amd import machines, tree
from tests.node.account import Account
from tests.node.cluster import Cluster
from tests.node.rig.places import NODE
from tests.node.rig.steps import until

PATH = f"/api/v1/nodes/{NODE}"
OURS = FEATURES["`fairlead amd labels`"]
THEIRS = (Rule("", "nodes", ("watch", "get", "list", "update")),)
FOREIGN = {"amd.com/gpu": "true", "amd.com/mi300x": "y"}
STALE = {"amd.com/gpu.family": "NV", "amd.com/gpu.vram.8G": "3", "beta.amd.com/gpu.firmware.ME.fw.1": "8"}
FLAGS = ("-vram", "-product-name", "-device-id")


def put(cluster: Cluster, labels: dict[str, str | None]) -> None:
    cluster.api.call("PATCH", PATH, {"metadata": {"labels": labels}}, "application/merge-patch+json")


def labels(cluster: Cluster) -> dict[str, str]:
    found = cluster.api.get(PATH)["metadata"]["labels"]
    return {name: value for name, value in found.items() if "amd.com/" in name}


def start(who: Account, root: Path, *args: str) -> subprocess.Popen[bytes]:
    env = {**os.environ, "DS_NODE_NAME": NODE}
    words = ["-m", "fairlead", "amd", "labels", *args, f"--kubeconfig={who.file}", f"--host-root={root}"]
    return subprocess.Popen([sys.executable, *words], env=env)


@pytest.fixture(params=[OURS, THEIRS], ids=["guide", "amd"])
def who(cluster: Cluster, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Account]:
    account = Account(tmp_path, request.param)
    yield account
    account.remove()
    put(cluster, dict.fromkeys(labels(cluster)))


def test_labels_are_written_and_kept(cluster: Cluster, who: Account, tmp_path: Path):
    machine = machines.vegas().change("0000:1a:00.0", product="A name / that no label has: " + 60 * "x")
    root = tree.write(tmp_path / "host", machine)
    put(cluster, {**FOREIGN, **STALE})
    labeller = start(who, root, *FLAGS)
    try:
        wanted = {
            **FOREIGN,
            "amd.com/gpu.vram": "16G",
            "beta.amd.com/gpu.vram": "16G",
            "beta.amd.com/gpu.vram.16G": "2",
            "amd.com/gpu.device-id": "6860",
            "beta.amd.com/gpu.device-id": "6860",
            "beta.amd.com/gpu.device-id.6860": "2",
        }
        for prefix in ("", "beta."):
            for name in ("AMD_Instinct_MI25", "A_name__that_no_label_has_" + 20 * "x"):
                wanted[f"{prefix}amd.com/gpu.product-name.{name}"] = "1"
        until(lambda: labels(cluster) == wanted, "the labels are there, stale ones gone, and others stay")
        put(cluster, {"amd.com/gpu.vram": "1G", "beta.amd.com/gpu.vram": None, "amd.com/gpu.family.HPC": "1"})
        until(lambda: labels(cluster) == wanted, "what another writer did is undone")
        tree.write(root, machine.without("0000:1a:00.0"))
        until(lambda: labels(cluster).get("beta.amd.com/gpu.vram.16G") == "1", "a GPU that goes is seen")
    finally:
        labeller.terminate()
        assert labeller.wait(30) == 0
    assert labels(cluster)["amd.com/gpu.vram"] == "16G"
    assert start(who, root, "--oneshot").wait(60) == 0
    assert labels(cluster) == FOREIGN

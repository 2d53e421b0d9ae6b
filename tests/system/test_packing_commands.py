"""`fairlead inspect`, `why` and `simulate` as people type them, on a snapshot and on a fake API server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.apiserver.server import api_server
from tests.system.process import fairlead
from tests.unit.scheduler.rig import node, placed, pod

THINGS = [
    node("n1"),
    node("n2", 8, 1),
    {"metadata": {"name": "plain"}, "status": {"capacity": {"cpu": "8"}}},
    placed("a", 10, "n1", 0),
    placed("b", 4, "n1", 1),
    pod("waits", 14),
    pod("fits", 6),
    pod("cpu", 1, resource="cpu"),
    pod("lost", 3, on="n1"),
]


def kinds(things: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"kind": "Pod" if "spec" in thing else "Node", **thing} for thing in things]


@pytest.fixture
def snapshot(tmp_path: Path) -> str:
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"kind": "List", "items": kinds(THINGS)}))
    return str(file)


async def test_inspect_shows_devices_the_rest_and_the_largest_pod(snapshot: str):
    code, out, err = await fairlead("inspect", "--snapshot", snapshot, env={"NO_COLOR": "1"})
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "aliyun.com/gpu-mem",
        "",
        "NODE  DEVICES                      TAKEN  OF  LARGEST FREE  FREE IN PARTS",
        "n1    0[######....] 1[##........]     14  32            12             18",
        "n2    0[..........]                    0   8             8",
        "",
        "14 of 40 are taken (35%). The largest pod that still fits on one device asks for 12.",
        "",
        "2 pods wait: default/waits, default/fits. See fairlead why POD",
        "",
        "not counted: default/lost: it says nothing of its devices",
    ]
    _, out, _ = await fairlead("inspect", "n1", "--pods", "--snapshot", snapshot, env={"NO_COLOR": "1"})
    assert "n1    0       default/a     10\nn1    1       default/b      4" in out
    assert "n2" not in out
    _, out, _ = await fairlead("inspect", "--json", "--snapshot", snapshot)
    assert json.loads(out)["nodes"][0]["devices"][0]["pods"] == [{"pod": "default/a", "units": 10}]


async def test_inspect_asks_the_cluster(tmp_path: Path):
    async with api_server() as server:
        for thing in THINGS:
            plural = "pods" if "spec" in thing else "nodes"
            server.store.put(plural, thing, thing["metadata"].get("namespace", ""))
        server.allowed = {("list", "nodes"), ("list", "pods")}
        env = {"KUBECONFIG": server.write_kubeconfig(tmp_path / "k"), "NO_COLOR": "1"}
        code, out, err = await fairlead("inspect", env=env)
    assert (code, err) == (0, "")
    assert "14 of 40 are taken" in out


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("waits", "asks for 14 of aliyun.com/gpu-mem on 1 device"),
        ("waits", "1  Insufficient GPU Memory in one device: 14 asked, at most 12 free  (n1)"),
        ("waits", "1  Insufficient GPU Memory in one device: 14 asked, and its devices are smaller or fewer  (n2)"),
        ("fits", "It fits, best on n1, n2"),
        ("cpu", "it asks for no resource that is packed by devices"),
        ("a", "is on node n1"),
        ("default/lost", "is on node n1, but it says nothing of its devices"),
    ],
)
async def test_why_a_pod_waits(snapshot: str, name: str, said: str):
    code, out, err = await fairlead("why", name, "--snapshot", snapshot)
    assert (code, err) == (0, "")
    assert said in out


async def test_a_pod_that_is_not_there_is_an_error(snapshot: str):
    code, _, err = await fairlead("why", "nosuch", "--snapshot", snapshot)
    assert code == 2
    assert "there is no pod default/nosuch" in err


async def test_simulate_places_pods_one_after_the_other(snapshot: str, tmp_path: Path):
    file = tmp_path / "pods.yaml"
    file.write_text("\n---\n".join(json.dumps(one) for one in kinds([pod("x", 8), pod("y", 12), pod("z", 12)])))
    code, out, _ = await fairlead("simulate", str(file), "--snapshot", snapshot, env={"NO_COLOR": "1"})
    assert code == 1
    lines = out.splitlines()
    assert lines[1].split()[-2:] == ["n2", "0"]
    assert lines[2].split()[-2:] == ["n1", "1"]
    assert "nowhere" in lines[3]
    assert "12 asked, at most 6 free" in lines[3]
    assert lines[-1] == "2 of 3 pods fit."
    _, out, _ = await fairlead("simulate", str(file), "--snapshot", snapshot, "--json")
    assert [one["node"] for one in json.loads(out)] == ["n2", "n1", ""]


async def test_amounts_may_be_numbers_as_people_write_them(snapshot: str, tmp_path: Path):
    file = tmp_path / "pods.yaml"
    limits = "limits: {aliyun.com/gpu-mem: 8}"
    file.write_text(f"kind: Pod\nmetadata: {{name: x}}\nspec: {{containers: [{{name: c, resources: {{{limits}}}}}]}}\n")
    code, out, err = await fairlead("simulate", str(file), "--snapshot", snapshot, env={"NO_COLOR": "1"})
    assert (code, err) == (0, "")
    assert "8 of aliyun.com/gpu-mem on 1 device" in out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no pods"),
        ("kind: Pod\nmetadata: {name: x, annotations: 7}\n", "Pod x: Expected"),
        ("kind: [", "pods.yaml: line 2, column 1"),
        ("[" * 100_000, ""),
    ],
)
async def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, snapshot: str, text: str, said: str):
    file = tmp_path / "pods.yaml"
    file.write_text(text)
    code, _, err = await fairlead("simulate", str(file), "--snapshot", snapshot)
    assert code == 2
    assert said in err
    assert "Traceback" not in err

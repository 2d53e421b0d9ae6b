"""`fairlead node` as people type it, and a daemon that publishes amounts, against a fake API server."""

from __future__ import annotations

import asyncio
import json
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.apiserver.server import ApiServer, api_server
from tests.system.process import fairlead, program

CORE = "example.com/gpu-core"
PATIENCE_S = 20.0


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with api_server() as server:
        amounts = {"cpu": "8", "nvidia.com/gpu": "4"}
        status = {"capacity": amounts, "allocatable": dict(amounts)}
        server.store.put("nodes", {"metadata": {"name": "n1", "annotations": {"a": "b"}}, "status": status})
        yield server


@pytest.fixture
def env(server: ApiServer, tmp_path: Path) -> dict[str, str]:
    return {"KUBECONFIG": server.write_kubeconfig(tmp_path / "config"), "NODE_NAME": "n1", "NO_COLOR": "1"}


def _capacity(server: ApiServer) -> dict[str, str]:
    found: dict[str, str] = server.store.get("nodes", "n1")["status"]["capacity"]
    return found


async def test_an_amount_is_set_shown_and_unset(server: ApiServer, env: dict[str, str]):
    code, out, err = await fairlead("node", "set", f"{CORE}=800", "example.com/licences=5", env=env)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "node n1",
        "",
        "RESOURCE              CAPACITY  ALLOCATABLE  SET BY",
        "example.com/gpu-core       800          800  fairlead node set",
        "example.com/licences         5            5  fairlead node set",
        "nvidia.com/gpu               4            4  a device plugin, or others",
    ]
    assert (await fairlead("node", "show", env=env))[1] == out
    code, out, _ = await fairlead("node", "unset", "example.com/licences", "--json", env=env)
    rows = json.loads(out)["resources"]
    assert [row["resource"] for row in rows] == [CORE, "nvidia.com/gpu"]
    assert rows[0] == {"resource": CORE, "capacity": "800", "allocatable": "800", "set_by": "by-hand"}
    assert _capacity(server) == {"cpu": "8", "nvidia.com/gpu": "4", CORE: "800"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["set", "gpu=1"], "it needs a vendor domain"),
        (["set", "a.com/b"], "not of the form NAME=AMOUNT"),
        (["set", "a.com/b=-1"], "amount '-1': it is negative"),
        (["set", "a.com/b=1.5"], "it is not a whole number"),
        (["set", "a.com/b=much"], "it is not a quantity"),
        (["set", "a.com/b=99999999999999999999"], "it is larger than"),
        (["set", "a.com/b=1", "a.com/b=2"], "a.com/b is given twice"),
        (["set", "a.kubernetes.io/b=1"], "kubernetes.io is reserved"),
        (["set", "nvidia.com/gpu=1"], "nvidia.com/gpu: it is 4 already, and not by Fairlead. Set it all the same with"),
        (["unset", "nvidia.com/gpu"], "it was not set by `fairlead node set`. Remove it all the same with --force"),
        (["unset", "a.com/b"], "a.com/b: the node has none"),
        (["unset", "gpu"], "it needs a vendor domain"),
    ],
)
async def test_bad_input_is_a_line_and_changes_nothing(
    server: ApiServer, env: dict[str, str], words: list[str], said: str
):
    code, out, err = await fairlead("node", *words, env=env)
    assert (code, out) == (2, "")
    assert said in err
    assert "Traceback" not in err
    assert not [request for request in server.requests if request.method == "PATCH"]


async def test_every_fault_is_named_at_once(env: dict[str, str]):
    _, _, err = await fairlead("node", "set", "gpu=1", "a.com/b=-1", "a.com/c=x", env=env)
    assert len(err.splitlines()) == 3


async def test_what_others_keep_needs_force(server: ApiServer, env: dict[str, str]):
    server.store.get("nodes", "n1")["metadata"]["annotations"]["amounts.fairlead/blue"] = CORE
    for place in ("capacity", "allocatable"):
        server.store.get("nodes", "n1")["status"][place][CORE] = "800"
    code, _, err = await fairlead("node", "unset", CORE, env=env)
    assert code == 2
    assert "the daemon 'blue' keeps it" in err
    assert (await fairlead("node", "unset", CORE, "--force", env=env))[0] == 0
    assert CORE not in _capacity(server)
    assert (await fairlead("node", "set", "nvidia.com/gpu=1", "--force", env=env))[0] == 0
    assert _capacity(server)["nvidia.com/gpu"] == "1"


async def test_which_node_must_be_said(env: dict[str, str]):
    code, _, err = await fairlead("node", "show", env={**env, "NODE_NAME": ""})
    assert code == 2
    assert "Name it with --node" in err
    code, _, err = await fairlead("node", "show", "--node", "nowhere", env=env)
    assert (code, err) == (6, "fairlead: cannot get nodes of 'nowhere': nodes \"nowhere\" not found\n")


async def test_a_missing_rule_is_shown_as_yaml(server: ApiServer, env: dict[str, str]):
    server.allowed = {("get", "nodes")}
    code, _, err = await fairlead("node", "set", f"{CORE}=1", env=env)
    assert code == 6
    assert 'fairlead:   resources: ["nodes/status"]\nfairlead:   verbs: ["patch"]' in err
    assert "s3cret" not in err


async def test_keep_sets_again_what_was_reset_and_leaves_it_at_the_end(server: ApiServer, env: dict[str, str]):
    words = ("-m", "fairlead", "node", "set", "--keep", f"{CORE}=800")
    async with program(*words, env=env) as running:
        await running.says("keeping them until Ctrl-C")
        await server.watched()
        thing = json.loads(json.dumps(server.store.get("nodes", "n1")))
        thing["status"]["capacity"][CORE] = "0"
        server.store.put("nodes", thing)
        await running.says("amounts-undone")
        await _until(server, lambda: _capacity(server)[CORE] == "800")
        running.send(signal.SIGINT)
        assert await running.ends() == 0
    assert _capacity(server)[CORE] == "800"


async def _until(server: ApiServer, condition: Any) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await server.store.news()


# --- The daemon -------------------------------------------------------------------------------------------------------


@pytest.fixture
def place() -> Iterator[Path]:
    """Short: a socket's path may have 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="fl") as place:
        yield Path(place)


def _config(place: Path, amounts: list[dict[str, Any]], **more: Any) -> Path:
    file = place / "fairlead.yaml"
    fleet = {"name": "f", "devices": [{"count": 4, "id": "gpu-{i}"}]}
    config = {
        "backends": [{"kind": "sim", "fleet": fleet}],
        "rules": [{"resource": "example.com/gpu"}],
        "amounts": amounts,
        "kubelet": {"directory": str(place / "plugins"), "podResources": ""},
        "status": {"socket": str(place / "fairlead.sock")},
        **more,
    }
    beside = place / "fairlead.new"
    beside.write_text(json.dumps(config))
    return beside.replace(file)


async def test_a_daemon_publishes_what_its_healthy_devices_amount_to(
    server: ApiServer, env: dict[str, str], place: Path
):
    amounts = [{"resource": CORE, "perDevice": 100}, {"resource": "example.com/gpu-count", "perDevice": 1}]
    config = _config(place, amounts)
    async with program("-m", "fairlead", "run", "--config", str(config), env=env) as daemon:
        await _until(server, lambda: _capacity(server).get(CORE) == "400")
        assert _capacity(server)["example.com/gpu-count"] == "4"
        await fairlead("sim", "--socket", str(place / "fairlead.sock"), "fail", "gpu-1", "xid=79")
        await _until(server, lambda: _capacity(server).get(CORE) == "300")
        # What is configured no more goes; the daemon's end takes nothing away.
        _config(place, amounts[:1])
        daemon.send(signal.SIGHUP)
        await _until(server, lambda: "example.com/gpu-count" not in _capacity(server))
        daemon.send(signal.SIGTERM)
        assert await daemon.ends() == 0
    assert _capacity(server)[CORE] == "300"
    assert server.store.get("nodes", "n1")["metadata"]["annotations"]["amounts.fairlead/fairlead"] == CORE


async def test_a_plan_shows_the_amounts_without_asking_a_cluster(place: Path):
    config = _config(place, [{"resource": CORE, "perDevice": 100}])
    code, out, _ = await fairlead("plan", "--config", str(config))
    assert code == 0
    assert "AMOUNT IN NODE STATUS  NOW\nexample.com/gpu-core   400" in out
    _, out, _ = await fairlead("plan", "--config", str(config), "--json")
    assert json.loads(out)["amounts"] == [{"name": CORE, "amount": 400}]


async def test_amounts_may_come_with_a_reload(server: ApiServer, env: dict[str, str], place: Path):
    config = _config(place, [])
    async with program("-m", "fairlead", "run", "--config", str(config), env=env) as daemon:
        await daemon.says("started")
        assert server.requests == []
        _config(place, [{"resource": "example.com/licences", "total": "1k"}])
        daemon.send(signal.SIGHUP)
        await _until(server, lambda: _capacity(server).get("example.com/licences") == "1000")


async def test_a_daemon_without_a_cluster_serves_its_devices_and_says_what_is_wrong(
    server: ApiServer, env: dict[str, str], place: Path
):
    server.allowed = {("list", "nodes"), ("watch", "nodes")}
    config = _config(place, [{"resource": CORE, "perDevice": 100}])
    async with program("-m", "fairlead", "run", "--config", str(config), env=env) as daemon:
        line = await daemon.says("problem topic=amounts")
        assert "nodes/status" in line
        assert "s3cret" not in line
        socket = str(place / "fairlead.sock")
        _, out, _ = await fairlead("status", "--json", "--socket", socket)
        status = json.loads(out)
        assert len(status["devices"]) == 4
        assert any("may not patch nodes/status of 'n1'" in problem for problem in status["problems"])


async def test_a_daemon_that_does_not_know_its_node_does_not_start(env: dict[str, str], place: Path):
    config = _config(place, [{"resource": CORE, "perDevice": 100}])
    code, _, err = await fairlead("run", "--config", str(config), env={**env, "NODE_NAME": ""})
    assert code == 2
    assert "cluster.node: the name of this node is not known" in err
    missing = {**env, "KUBECONFIG": "/nowhere"}
    code, _, err = await fairlead("run", "--config", str(config), env=missing)
    assert (code, err) == (2, "fairlead: kubeconfig /nowhere: there is no such file\n")


async def test_a_daemon_without_amounts_loads_nothing_of_the_cluster(place: Path):
    config = _config(place, [])
    loaded = (
        "import sys\n"
        "from fairlead.app.start import load_libraries; load_libraries()\n"
        "from fairlead.app.daemon import Daemon\n"
        "from fairlead.config.load import load\n"
        f"Daemon(load({str(config)!r}))\n"
        "bad = [name for name in sys.modules if name.startswith('fairlead.cluster') or name in ('ssl', 'fractions')]\n"
        "sys.exit(repr(bad) if bad else 0)\n"
    )
    async with program("-c", loaded) as process:
        assert await process.ends() == 0, process.lines

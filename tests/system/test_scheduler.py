"""`fairlead scheduler` as a process, against a fake API server: it lists, serves, and ends."""

from __future__ import annotations

import asyncio
import json
import signal
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.apiserver.certificates import Authority
from tests.apiserver.server import ApiServer, api_server
from tests.system.extender import WORDS, port_of, ports_of
from tests.system.process import fairlead, program
from tests.unit.scheduler.rig import INDEX, node, placed, pod


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with api_server() as server:
        server.store.put("nodes", node("n1"))
        server.store.put("pods", placed("a", 6, "n1", 1), "default")
        server.store.put("pods", pod("p", 10), "default")
        yield server


@pytest.fixture
def env(server: ApiServer, tmp_path: Path) -> dict[str, str]:
    return {"KUBECONFIG": server.write_kubeconfig(tmp_path / "kubeconfig"), "NO_COLOR": "1"}


async def status(port: int, method: str, path: str) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    return int(answer.split()[1])


async def ask(port: int, path: str, body: Any, tls: ssl.SSLContext | None = None) -> Any:
    raw = json.dumps(body).encode()
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=tls, server_hostname="localhost" if tls else None
    )
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(raw)}\r\n\r\n"
    writer.write(head.encode() + raw)
    answer = await reader.read()
    writer.close()
    return json.loads(answer.partition(b"\r\n\r\n")[2])


async def test_a_pod_is_placed_by_the_tightest_device(server: ApiServer, env: dict[str, str]):
    async with program(*WORDS, "--listen", "127.0.0.1:0", env=env) as running:
        port = await port_of(running)
        assert "nodes=1 pods=2" in await running.says("ready")
        args = {"Pod": pod("p", 10), "NodeNames": ["n1"]}
        assert (await ask(port, "/gpushare-scheduler/filter", args))["NodeNames"] == ["n1"]
        to = {"PodName": "p", "PodNamespace": "default", "PodUID": "uid-p", "Node": "n1"}
        assert await ask(port, "/gpushare-scheduler/bind", to) == {"Error": ""}
        assert server.store.get("pods", "p", "default")["metadata"]["annotations"][INDEX] == "1"
        running.send(signal.SIGTERM)
        assert await running.ends() == 0


async def test_what_it_needs_is_nothing_but_its_rights(server: ApiServer, env: dict[str, str]):
    server.allowed = {(verb, kind) for verb in ("list", "watch") for kind in ("nodes", "pods")}
    server.allowed |= {("create", "pods/binding")}
    async with program(*WORDS, "--listen", "127.0.0.1:0", env=env) as running:
        port = await port_of(running)
        await running.says("ready")
        to = {"PodName": "p", "PodNamespace": "default", "PodUID": "uid-p", "Node": "n1"}
        assert await ask(port, "/scheduler/bind", to) == {"Error": ""}
        running.send(signal.SIGTERM)
        assert await running.ends() == 0


async def test_over_tls_and_only_for_clients_with_a_certificate(server: ApiServer, env: dict[str, str], tmp_path: Path):
    authority = Authority(tmp_path)
    ours, mine = authority.issue("localhost"), authority.issue("scheduler")
    config = tmp_path / "scheduler.yaml"
    tls = {"cert": str(ours.cert), "key": str(ours.key), "clientCa": str(authority.ca.cert)}
    config.write_text(json.dumps({"listen": ["127.0.0.1:0"], "tls": tls, "resources": [{"system": "gpushare"}]}))
    async with program(*WORDS, "--config", str(config), env=env) as running:
        port = await port_of(running)
        await running.says("ready")
        known = ssl.create_default_context(cafile=str(authority.ca.cert))
        with pytest.raises((ssl.SSLError, ConnectionError, json.JSONDecodeError)):
            await ask(port, "/scheduler/filter", {}, known)
        known.load_cert_chain(mine.cert, mine.key)
        assert (await ask(port, "/scheduler/filter", {}, known))["Error"] == "the request has no Pod"
        running.send(signal.SIGTERM)
        assert await running.ends() == 0


async def test_probes_have_an_address_that_answers_nothing_else(server: ApiServer, env: dict[str, str], tmp_path: Path):
    authority = Authority(tmp_path)
    ours = authority.issue("localhost")
    tls = {"cert": str(ours.cert), "key": str(ours.key), "clientCa": str(authority.ca.cert)}
    config = tmp_path / "scheduler.yaml"
    config.write_text(json.dumps({"listen": ["127.0.0.1:0"], "probes": ["127.0.0.1:0"], "tls": tls}))
    async with program(*WORDS, "--config", str(config), env=env) as running:
        _, probes = await ports_of(running)
        await running.says("ready")
        # The kubelet has no certificate.
        assert [await status(probes, "GET", path) for path in ("/healthz", "/readyz")] == [200, 200]
        verbs = ("filter", "prioritize", "bind", "preempt", "inspect")
        for path in (f"{prefix}/{verb}" for prefix in ("/scheduler", "/gpushare-scheduler") for verb in verbs):
            assert await status(probes, "POST", path) == 404
        running.send(signal.SIGTERM)
        assert await running.ends() == 0


async def test_it_waits_for_an_api_server_that_is_away_and_says_so(tmp_path: Path):
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}
    context = {"name": "x", "context": {"cluster": "c", "user": ""}}
    (tmp_path / "k").write_text(json.dumps({"clusters": [cluster], "contexts": [context], "current-context": "x"}))
    async with program(*WORDS, "--listen", "127.0.0.1:0", env={"KUBECONFIG": str(tmp_path / "k")}) as running:
        port = await port_of(running)
        await running.says("api-server")
        found = await ask(port, "/scheduler/filter", {"Pod": pod("p", 1), "NodeNames": ["n1"]})
        assert "127.0.0.1:1" in found["Error"]
        running.send(signal.SIGTERM)
        assert await running.ends() == 0


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"resources": [{"system": "gpushar"}]}, "gpushare"),
        ({"resources": [{"system": "fairlead"}]}, "resources[0].resource: name the resource"),
        ({"resources": [{"system": "fairlead", "resource": "x"}]}, "it needs a vendor domain"),
        ({"resources": [{"system": "doslab", "resource": "a.com/b"}]}, "the names of doslab are known"),
        ({"resources": [{"system": "doslab"}, {"system": "doslab"}]}, "doslab.io/gpu-memory is here twice"),
        ({"tls": {"cert": "/a"}}, "cert and key belong together"),
        ({"tls": {"clientCa": "/a"}}, "Give cert and key too"),
        ({"listen": []}, "give at least one address"),
        ({"nodes": -1}, "nodes"),
        ({"node": 1}, "unknown key 'node'"),
    ],
)
async def test_a_mistake_is_named_and_nothing_starts(tmp_path: Path, config: dict[str, Any], said: str):
    file = tmp_path / "scheduler.yaml"
    file.write_text(json.dumps(config))
    code, out, err = await fairlead("scheduler", "--config", str(file))
    assert (code, out) == (2, "")
    assert said in err
    assert "Traceback" not in err


async def test_an_address_that_is_taken_is_one_line(server: ApiServer, env: dict[str, str]):
    code, _, err = await fairlead("scheduler", "--listen", f"127.0.0.1:{server.port}", env=env)
    assert code == 3
    assert "cannot listen on" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(("port", "said"), [("none", "which is no port"), ("99999", "which is no port")])
async def test_a_port_of_the_environment_is_checked(env: dict[str, str], port: str, said: str):
    code, _, err = await fairlead("scheduler", env={**env, "PORT": port})
    assert code == 2
    assert said in err


async def test_the_schedulers_configuration_asks_about_all_nodes(tmp_path: Path):
    file = tmp_path / "scheduler.yaml"
    file.write_text("resources: [{system: fairlead, resource: example.com/gpu-memory}]\n")
    code, out, _ = await fairlead("scheduler", "config", "--config", str(file), "--url", "https://extender:8443/")
    assert code == 0
    made = yaml.safe_load(out)
    (extender,) = made["extenders"]
    assert extender["urlPrefix"] == "https://extender:8443/scheduler"
    assert extender["enableHTTPS"] is True
    assert [one["name"] for one in extender["managedResources"]] == ["example.com/gpu-memory"]
    assert made["profiles"][0]["percentageOfNodesToScore"] == 100

"""`fairlead gpushare inspect` as people type it: flags, errors, JSON. The tables are in tests/recorded."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.apiserver.certificates import Authority
from tests.apiserver.server import ApiServer, api_server

from fairlead.cli import gpushare_inspect
from fairlead.cluster.rbac import FEATURES

RULES = FEATURES["`fairlead gpushare inspect`"]
ALLOWED = {(verb, rule.resource) for rule in RULES for verb in rule.verbs}
PATIENCE_S = 50.0
WHO = "fairlead gpushare inspect: "


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ApiServer]:
    async with api_server() as server:
        amounts = {"aliyun.com/gpu-mem": "32", "aliyun.com/gpu-count": "2"}
        server.store.put("nodes", {"metadata": {"name": "n1"}, "status": {"allocatable": amounts}})
        server.store.put("nodes", {"metadata": {"name": "n2"}, "status": {"allocatable": amounts}})
        put_pod(server, "a", "n1", {"ALIYUN_COM_GPU_MEM_IDX": "1"})
        server.allowed = set(ALLOWED)
        monkeypatch.setenv("KUBECONFIG", server.write_kubeconfig(tmp_path / "config"))
        yield server


def put_pod(server: ApiServer, name: str, node: str, annotations: dict[str, str]) -> None:
    limits = {"limits": {"aliyun.com/gpu-mem": "4"}}
    spec = {"nodeName": node, "containers": [{"name": "c", "resources": limits}]}
    thing = {"metadata": {"name": name, "annotations": annotations}, "spec": spec, "status": {"phase": "Running"}}
    server.store.put("pods", thing, "default")


async def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    code = await asyncio.to_thread(gpushare_inspect.main, args)
    printed = capsys.readouterr()
    return code, printed.out, printed.err


async def test_json_has_everything(server: ApiServer, capsys: pytest.CaptureFixture[str]):
    put_pod(server, "b", "n1", {"ALIYUN_COM_GPU_MEM_IDX": "x"})
    code, out, err = await run(capsys, "--json", "n1")
    assert (code, err) == (0, "")
    found = json.loads(out)
    note = (
        "pod default/b: its annotation ALIYUN_COM_GPU_MEM_IDX names 'x', which the node does not have. "
        "It counts as pending"
    )
    assert found.pop("notes") == [note]
    assert found == {
        "unit": "GiB",
        "allocated": 8,
        "total": 32,
        "nodes": [
            {
                "name": "n1",
                "address": "unknown",
                "unit": "GiB",
                "allocated": 8,
                "total": 32,
                "pending": 4,
                "gpus": [{"index": 0, "allocated": 0, "total": 16}, {"index": 1, "allocated": 4, "total": 16}],
                "pods": [
                    {"namespace": "default", "name": "a", "gpus": [{"index": 1, "allocated": 4}], "pending": 0},
                    {"namespace": "default", "name": "b", "gpus": [], "pending": 4},
                ],
            }
        ],
    }


async def test_flags_may_come_before_and_behind_the_node(server: ApiServer, capsys: pytest.CaptureFixture[str]):
    before = await run(capsys, "-logtostderr", "--v=5", "-d", "n1")
    assert before == await run(capsys, "n1", "-d=true") == await run(capsys, "--d", "--", "n1")
    assert before[0] == 0
    assert "NAME:       n1" in before[1]


async def test_only_pods_that_count_are_asked_for(server: ApiServer, capsys: pytest.CaptureFixture[str]):
    await run(capsys)
    await run(capsys, "n1")
    asked = [it.query["fieldSelector"] for it in server.requests if it.path == "/api/v1/pods"]
    alive = "status.phase!=Succeeded,status.phase!=Failed"
    assert asked == [f"spec.nodeName!=,{alive}", f"spec.nodeName=n1,{alive}"]


async def test_many_odd_pods_do_not_flood_the_screen(server: ApiServer, capsys: pytest.CaptureFixture[str]):
    for number in range(30):
        put_pod(server, f"odd-{number}", "n1", {"ALIYUN_COM_GPU_MEM_IDX": "x"})
    _, _, err = await run(capsys)
    assert len(err.splitlines()) == 21
    assert err.splitlines()[-1] == f"{WHO}note: and 10 more; --json has them all"


async def test_a_node_that_is_not_there_is_an_error(server: ApiServer, capsys: pytest.CaptureFixture[str]):
    code, out, err = await run(capsys, "n9")
    assert (code, out, err) == (1, "", f"{WHO}cannot get nodes of 'n9': nodes \"n9\" not found\n")


@pytest.mark.parametrize(
    ("verb", "resource", "args"), [("list", "nodes", []), ("get", "nodes", ["n1"]), ("list", "pods", [])]
)
async def test_a_rule_that_is_missing_is_named(
    server: ApiServer, capsys: pytest.CaptureFixture[str], verb: str, resource: str, args: list[str]
):
    assert server.allowed is not None
    server.allowed -= {(verb, resource)}
    code, out, err = await run(capsys, *args)
    assert (code, out) == (1, "")
    assert f"{WHO}system:serviceaccount:default:fairlead may not {verb} {resource}" in err
    assert f'resources: ["{resource}"]\n{WHO}  verbs: ["{verb}"]' in err
    assert "s3cret" not in err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--detail"], "flag provided but not defined: -detail. --help lists all"),
        (["n1", "n2"], "one node at a time, and not n1 n2. Name none to see all nodes"),
        (["-d", "--", "n1", "-d"], "one node at a time, and not n1 -d. Name none to see all nodes"),
        (["--dialect", "volcan"], "no dialect 'volcan'; did you mean 'volcano'? Known: gpushare, volcano"),
        (["--kubeconfig", "/nowhere"], "kubeconfig /nowhere: there is no such file"),
        (["-d=perhaps"], "--d: 'perhaps' is not true or false"),
    ],
)
def test_mistakes_are_one_line_with_a_cure(capsys: pytest.CaptureFixture[str], args: list[str], said: str):
    assert gpushare_inspect.main(args) == 1
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", f"{WHO}{said}\n")


def test_help_names_every_flag_of_its_own(capsys: pytest.CaptureFixture[str]):
    assert gpushare_inspect.main(["-h"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Usage: fairlead gpushare inspect [node] [flags]\n")
    assert all(f"--{flag.name}" in out for flag in gpushare_inspect.FLAGS)
    assert "logtostderr" not in out


async def test_the_whole_command_speaks_tls(tmp_path: Path):
    authority = Authority(tmp_path)
    async with api_server(authority.server_context(authority.issue("server"))) as server:
        server.store.put("nodes", {"metadata": {"name": "n1"}})
        cluster = {"server": server.url, "certificate-authority": str(authority.ca.cert)}
        config = {
            "clusters": [{"name": "c", "cluster": cluster}],
            "contexts": [{"name": "x", "context": {"cluster": "c"}}],
        }
        (tmp_path / "config").write_text(json.dumps(config))
        names = ["gpushare", "inspect", "--kubeconfig", str(tmp_path / "config"), "--context=x", "--json"]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "fairlead", *names, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        async with asyncio.timeout(PATIENCE_S):
            out, err = await process.communicate()
    assert (process.returncode, err) == (0, b"")
    assert json.loads(out)["notes"] == ["no node here offers aliyun.com/gpu-mem"]


def test_nobody_who_reads_on_is_no_error():
    script = "import sys; from fairlead.cli.gpushare_inspect import main; sys.exit(main(['--help']))"
    read, write = os.pipe()
    os.close(read)
    try:
        done: subprocess.CompletedProcess[Any] = subprocess.run(
            [sys.executable, "-c", script], stdout=write, stderr=subprocess.PIPE, check=False, timeout=PATIENCE_S
        )
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")

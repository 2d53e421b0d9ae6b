"""`fairlead doctor`: what it prints, how it ends, and what it says of what it could not look at."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.unit.programs.doctor import healthy as h
from tests.unit.programs.doctor.tree import Tree, listen

from fairlead.cli.commands import cli
from fairlead.cli.doctor import draw
from fairlead.programs.doctor import facts as f
from fairlead.programs.doctor.checks import CHECKS
from fairlead.programs.doctor.findings import examine


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    made = Tree(tmp_path / "host")
    (made.base / "sys/bus/pci/devices").mkdir(parents=True)
    made.host_processes()
    return made


def run(tree: Tree, *args: str) -> Result:
    common = ["--host-root", str(tree.base), "--status-socket", str(tree.base / "none.sock")]
    env = {"HOME": str(tree.base), "KUBECONFIG": "", "FAIRLEAD_CONFIG": "", "KUBERNETES_SERVICE_HOST": None}
    return CliRunner().invoke(cli, ["doctor", *common, *args], env=env)


def test_findings_end_with_one_and_are_printed_with_seen_why_and_cure(tree: Tree):
    result = run(tree)
    assert result.exit_code == 1
    assert "D01 error  the kubelet is not in the directories" in result.stdout
    for word in ("  seen  ", "  why   ", "  cure  ", "NOT LOOKED AT"):
        assert word in result.stdout


def test_the_answer_as_json_has_findings_and_what_was_not_looked_at(tree: Tree):
    answer = json.loads(run(tree, "--json").stdout)
    finding = answer["findings"][0]
    assert finding.keys() == {"code", "severity", "title", "seen", "why", "cure", "link"}
    assert answer["looked_at"] + len(answer["not_looked_at"]) == len(CHECKS)
    assert all(row["lacks"] for row in answer["not_looked_at"])


def test_without_a_daemon_a_configuration_tells_what_would_be_offered(tree: Tree, tmp_path: Path):
    config = tmp_path / "f.yaml"
    config.write_text("backends: [{kind: sim}]\nrules: [{resource: nvidia.com/gpu, replicas: 65536}]\n")
    plugins = tree.base / "var/lib/kubelet/device-plugins/kubelet.sock"
    resources = tree.base / "var/lib/kubelet/pod-resources/kubelet.sock"
    with listen(plugins):
        resources.parent.mkdir()
        resources.touch()
        result = run(tree, "--config", str(config), "--json")
    assert {one["code"] for one in json.loads(result.stdout)["findings"]} == {"D28"}


def test_a_configuration_that_is_wrong_is_what_is_lacking_not_an_end(tree: Tree, tmp_path: Path):
    config = tmp_path / "f.yaml"
    config.write_text("backedns: []\n")
    answer = json.loads(run(tree, "--config", str(config), "--json").stdout)
    lacks = {row["code"]: row["lacks"] for row in answer["not_looked_at"]}
    assert "unknown key 'backedns'" in lacks["D21"]


def test_a_healthy_node_is_one_line_and_notes_do_not_count():
    assert draw(examine(h.healthy(), CHECKS)) == "44 of 44 checks: nothing found"
    noted = examine(h.healthy(xids=(f.Xid("0000:3b:00", 31),)), CHECKS)
    assert noted.counted == 0
    assert draw(noted).startswith("44 of 44 checks: 1 note\n\nD17 note  ")


def test_checks_that_lack_the_same_are_named_together():
    away = f.Missing("the API server is away")
    text = draw(examine(h.healthy(node=away, pods=away), CHECKS))
    assert text.count("the API server is away") == 1
    assert "D05 D06 D29" in text

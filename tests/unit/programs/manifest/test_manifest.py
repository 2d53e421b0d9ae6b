"""What a manifest has for a configuration: the directories, privileges and rights that it needs, and no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from fairlead.cli.commands import cli
from fairlead.programs.manifest.needs import Level, find_needs

PLAIN = {"device-plugins", "pod-resources"}


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, ["manifest", *words])


def printed(*words: str) -> dict[str, Any]:
    done = run(*words)
    assert done.exit_code == 0, done.stderr
    return {one["kind"]: one for one in yaml.safe_load_all(done.stdout)}


def write(path: Path, config: Any) -> str:
    file = path / "fairlead.yaml"
    file.write_text(yaml.safe_dump(config))
    return str(file)


@pytest.mark.parametrize(
    ("backend", "level", "more"),
    [
        ({"kind": "sim"}, Level.RESTRICTED, set()),
        ({"kind": "paths"}, Level.RESTRICTED, {"dev", "sys"}),
        ({"kind": "amd"}, Level.PRIVILEGED, {"dev", "sys", "exporter"}),
        ({"kind": "amd", "ways": ["cdi-cri"]}, Level.PRIVILEGED, {"dev", "sys", "exporter", "cdi"}),
        ({"kind": "nvidia"}, Level.RESTRICTED, set()),
        ({"kind": "nvidia", "mig": "none"}, Level.RESTRICTED, set()),
        ({"kind": "nvidia", "mig": "single"}, Level.SYS_ADMIN, set()),
        ({"kind": "nvidia", "ways": ["volume-mounts"]}, Level.SYS_ADMIN, set()),
        ({"kind": "nvidia", "nodes": True}, Level.PRIVILEGED, set()),
        ({"kind": "nvidia", "ways": ["cdi-annotations"]}, Level.RESTRICTED, {"cdi"}),
        ({"kind": "nvidia", "driverRoot": "/run/nvidia/driver"}, Level.RESTRICTED, {"driver-root"}),
        ({"kind": "nvidia", "mps": {"root": "/mps"}}, Level.RESTRICTED, {"mps-root", "mps-shm"}),
        ({"kind": "nvidia", "mps": {"root": "/mps", "managed": True}}, Level.PRIVILEGED, {"mps-root", "mps-shm"}),
    ],
    ids=lambda value: " ".join(sorted(value)) if isinstance(value, set) else str(value),
)
def test_a_backend_brings_its_directories_and_its_level(backend: dict[str, Any], level: Level, more: set[str]):
    needs = find_needs({"backends": [backend]})
    assert {one.name for one in needs.directories} == PLAIN | more
    assert needs.level is level


def test_the_backend_that_needs_most_decides_the_level():
    assert find_needs({"backends": [{"kind": "amd"}, {"kind": "sim"}]}).level is Level.PRIVILEGED
    assert find_needs({"backends": []}).level is Level.RESTRICTED


def test_without_pod_resources_its_directory_is_not_mounted():
    assert [one.name for one in find_needs({"kubelet": {"podResources": ""}}).directories] == ["device-plugins"]


@pytest.mark.parametrize(
    ("config", "verbs"),
    [
        ({}, set()),
        ({"amounts": [{"resource": "example.com/a", "total": 1}]}, {"nodes list", "nodes watch", "nodes/status patch"}),
        ({"cluster": {"annotate": {"a": "b"}}}, {"nodes patch"}),
        (
            {"rules": [{"resource": "example.com/a", "assign": {"device": "x"}}]},
            {"pods list", "pods watch", "pods patch"},
        ),
    ],
    ids=["none", "amounts", "annotate", "assign"],
)
def test_rights_are_those_of_the_features(config: dict[str, Any], verbs: set[str]):
    assert {f"{rule.resource} {verb}" for rule in find_needs(config).rules for verb in rule.verbs} == verbs


def test_the_manifest_of_a_configuration_holds_the_configuration(tmp_path: Path):
    config = {
        "backends": [{"kind": "paths", "devices": [{"preset": "kvm"}]}],
        "rules": [{"resource": "example.com/kvm"}],
    }
    made = printed("--config", write(tmp_path, config), "--image", "example.org/mine:2", "--namespace", "devices")
    assert made.keys() == {"Namespace", "ServiceAccount", "ConfigMap", "DaemonSet"}
    kept = yaml.safe_load(made["ConfigMap"]["data"]["fairlead.yaml"])
    assert kept["rules"] == config["rules"]
    assert kept["backends"][0]["hostRoot"] == "/host"
    spec = made["DaemonSet"]["spec"]["template"]["spec"]
    assert spec["automountServiceAccountToken"] is False
    (container,) = spec["containers"]
    assert container["image"] == "example.org/mine:2"
    assert container["command"] == ["fairlead", "run", "--config=/etc/fairlead/fairlead.yaml"]
    assert {made[kind]["metadata"].get("namespace") for kind in ("ConfigMap", "DaemonSet")} == {"devices"}


def test_a_config_file_of_a_dialect_goes_along(tmp_path: Path):
    file = tmp_path / "nvidia.yaml"
    file.write_text("version: v1\nflags: {migStrategy: mixed}\n")
    made = printed("--dialect", "nvidia", "--", "--config-file", str(file))
    (container,) = made["DaemonSet"]["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["fairlead", "nvidia", "--config-file=/etc/fairlead/nvidia.yaml"]
    assert made["ConfigMap"]["data"] == {"nvidia.yaml": file.read_text()}
    assert container["securityContext"]["capabilities"]["add"] == ["SYS_ADMIN"]


def test_an_image_that_does_not_exist_is_named_beside_the_manifest(tmp_path: Path):
    path = tmp_path / "f.yaml"
    path.write_text("backends: [{kind: sim}]\nrules: [{resource: a.io/x}]\n")
    result = run("--config", str(path))
    assert "no image is published" in result.stderr
    assert "note:" not in result.stdout
    assert run("--config", str(path), "--image", "a.io/fairlead:1").stderr == ""


def test_text_is_printed_as_people_write_it(tmp_path: Path):
    config = {"backends": [{"kind": "sim"}], "rules": [{"resource": "example.com/a"}]}
    text = run("--config", write(tmp_path, config)).stdout
    assert "  fairlead.yaml: |\n    backends:\n" in text
    assert "&id" not in text


@pytest.mark.parametrize(
    ("words", "text", "code"),
    [
        ([], "give either --dialect or --config", 2),
        (["--dialect", "nvidia", "--config", "x"], "give either --dialect or --config", 2),
        (["--config", "/nowhere.yaml"], "/nowhere.yaml: cannot be read: No such file", 2),
        (["--config", "x", "--", "--mig-strategy=none"], "arguments are for a dialect", 2),
        (["--dialect", "nvidia", "--", "--mig-strategy=most"], "unknown MIG strategy: most", 2),
        (["--dialect", "volcano", "--", "--gpu-memory-factor=-1"], "gpu-memory-factor", 2),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_mistake_is_named(words: list[str], text: str, code: int):
    done = run(*words)
    assert text in done.stderr
    assert (done.exit_code, done.stdout) == (code, "")


@pytest.mark.parametrize(
    "config", [None, [], {"rules": []}, {"backend": []}], ids=["empty", "list", "no backends", "typo"]
)
def test_a_configuration_that_cannot_run_is_refused(tmp_path: Path, config: Any):
    done = run("--config", write(tmp_path, config))
    assert done.exit_code == 2
    assert done.stdout == ""
    assert "fairlead.yaml" in done.stderr

"""The programs that the chart starts understand what it gives them: flags, variables and configuration files."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from fairlead.cli.run import parse
from fairlead.config.load import build
from fairlead.config.settings import CHOICE_ENV, LABEL_ENV, SETTINGS, overrides
from fairlead.dialects.goflags import Flag
from fairlead.dialects.invocation import Program
from fairlead.programs import configmanager
from fairlead.programs.labels import loop as nvidia_labels
from fairlead.programs.labels.amd import command as amd_labels
from tests.chart import helm
from tests.chart.shapes import CASES, daemon_set, env, main_container, of_kind, pod

# Not the programs': NVIDIA's runtime reads these.
RUNTIMES = {"NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_MIG_MONITOR_DEVICES"}
ELSEWHERE = {"CONFIG_FILE", "XID_CONFIG"}  # what config-manager and a ConfigMap of the operator give
DIALECTS = [
    case
    for case in CASES
    if CASES[case].get("dialect", "nvidia") != "fairlead" and CASES[case].get("devicePlugin", {}).get("enabled", True)
]
OWN = [case for case in CASES if CASES[case].get("dialect") == "fairlead" and not case.startswith("own ConfigMap")]


def words(container: dict[str, Any]) -> list[str]:
    first, *rest = container["command"]
    assert first == "fairlead"
    return list(rest)


def environ(container: dict[str, Any]) -> dict[str, str]:
    """As the container has it. A value that the kubelet fills in is any word."""
    return {name: value or "word" for name, value in env(container).items()}


def config_files(made: list[dict[str, Any]], directory: Path) -> None:
    for one in of_kind(made, "ConfigMap"):
        for name, text in one["data"].items():
            (directory / name).write_text(text)


def variables(flags: tuple[Flag, ...]) -> set[str]:
    return {name for flag in flags for name in flag.env}


@pytest.mark.parametrize("case", DIALECTS)
def test_a_dialect_understands_its_command_line(case: str, tmp_path: Path):
    made = helm.objects(CASES[case])
    config_files(made, tmp_path)
    container = main_container(daemon_set(made))
    dialect, *args = words(container)
    program: Program = import_module(f"fairlead.dialects.{dialect}.command").PROGRAM
    # Files are where the chart mounts them; here they are in a directory of the test.
    args = [word.replace("/etc/fairlead/", f"{tmp_path}/") for word in args]
    given = {name: value for name, value in environ(container).items() if name not in ELSEWHERE}
    meant = program.read(args, given).translate()
    build(dict(meant.config), "chart")
    assert meant.notes == ()
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert meant.config["kubelet"]["directory"] in mounts
    assert meant.config["kubelet"]["podResources"].rpartition("/")[0] in mounts
    assert meant.config["status"]["socket"].rpartition("/")[0] in mounts
    for backend in meant.config["backends"]:
        if backend.get("hostRoot"):
            assert {f"{backend['hostRoot']}/dev", f"{backend['hostRoot']}/sys"} <= mounts


@pytest.mark.parametrize("case", DIALECTS)
def test_every_variable_is_one_that_the_program_reads(case: str):
    container = main_container(daemon_set(helm.objects(CASES[case])))
    program: Program = import_module(f"fairlead.dialects.{words(container)[0]}.command").PROGRAM
    known = variables(program.flags) | RUNTIMES | {"NODE_NAME", "XID_CONFIG", "FAIRLEAD_HTTP", "FAIRLEAD_LENIENT"}
    assert set(env(container)) <= known


@pytest.mark.parametrize("case", OWN)
def test_a_configuration_of_our_own_holds_and_serves_probes(case: str):
    made = helm.objects(CASES[case])
    container = main_container(daemon_set(made))
    command, *args = words(container)
    assert command == "run"
    flags = parse(args)
    several = CASES[case]["fairlead"].get("configs")
    assert flags == {"--config": "/etc/fairlead" if several else "/etc/fairlead/fairlead.yaml"}
    (config,) = of_kind(made, "ConfigMap")
    for name, text in config["data"].items():
        loaded = build(yaml.safe_load(text), name, overrides(flags, environ(container)))
        assert loaded.config.http.listen == ":9402"
        assert loaded.config.status.socket == "/run/fairlead/fairlead.sock"
    choice = {LABEL_ENV, CHOICE_ENV} if several else set()
    assert set(env(container)) <= {setting.env for setting in SETTINGS} | RUNTIMES | {"NODE_NAME"} | choice


@pytest.mark.parametrize("case", [case for case in CASES if CASES[case].get("gfd", {}).get("enabled")])
def test_the_labeller_understands_its_variables(case: str):
    container = main_container(daemon_set(helm.objects(CASES[case]), "gfd"))
    assert words(container)[:2] == ["nvidia", "labels"]
    given = {name: value for name, value in environ(container).items() if name not in ELSEWHERE}
    read = nvidia_labels.read_settings(words(container)[2:], given)
    assert isinstance(read, nvidia_labels.Settings)
    assert read.to_node is CASES[case]["gfd"].get("toNode", False)
    assert read.no_timestamp is CASES[case]["gfd"].get("noTimestamp", False)
    assert read.sleep_interval == CASES[case]["gfd"].get("sleepInterval", 60)


def test_amds_labeller_understands_its_flags():
    container = main_container(daemon_set(helm.objects(CASES["amd"]), "amd-labeller"))
    assert words(container)[:2] == ["amd", "labels"]
    read = amd_labels.read_settings(words(container)[2:], environ(container))
    assert isinstance(read, amd_labels.Settings)
    assert read.node_name == "word"
    assert "product-name" in read.kinds


def test_config_manager_understands_its_variables_and_signals_who_must_be_told():
    spec = pod(daemon_set(helm.objects(CASES["configs"]), "gfd"))
    (first,), (beside, *_) = spec["initContainers"], spec["containers"]
    for container, oneshot in ((first, True), (beside, False)):
        assert words(container)[:2] == ["nvidia", "config-manager"]
        read = configmanager.read_settings(words(container)[2:], environ(container) | {"DEFAULT_CONFIG": ""})
        assert isinstance(read, configmanager.Settings)
        assert (read.oneshot, read.send_signal) == (oneshot, not oneshot)
        assert read.fallback_strategies == ("named", "single")
        mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
        assert {read.config_file_srcdir, str(Path(read.config_file_dst).parent)} <= mounts
    # A process of another container can be signalled where the containers share their processes.
    assert spec["shareProcessNamespace"] is True
    assert configmanager.is_named(words_of_main(spec), "gpu-feature-discovery")


@pytest.mark.parametrize(
    ("case", "label", "default", "files"),
    [
        ("configs", "nvidia.com/device-plugin.config", "", ["default", "mig"]),
        ("own configs", "fairlead/config", "default", ["amd", "core", "default"]),
        ("own ConfigMap by label", "example.com/config", "", None),
    ],
)
def test_the_plugin_follows_the_label_without_a_second_container(
    case: str, label: str, default: str, files: list[str] | None
):
    made = helm.objects(CASES[case])
    spec = pod(daemon_set(made))
    (container,) = spec["containers"]
    assert "initContainers" not in spec
    given = env(container)
    assert (given["FAIRLEAD_CONFIG_LABEL"], given["FAIRLEAD_CONFIG_DEFAULT"]) == (label, default)
    directory = given.get("CONFIG_FILE") or words(container)[-1].removeprefix("--config=")
    assert directory in {mount["mountPath"] for mount in container["volumeMounts"]}
    maps = [sorted(one["data"]) for one in made if one["kind"] == "ConfigMap"]
    assert maps == ([files] if files else [])


def words_of_main(spec: dict[str, Any]) -> list[str]:
    return list(spec["containers"][-1]["command"])

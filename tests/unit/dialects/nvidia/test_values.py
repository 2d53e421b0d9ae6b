"""Empty, blank and relative values: those that NVIDIA's plugin takes, and errors that name what people wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlead.backends.nvidia import open_backend
from fairlead.cli import dialect
from fairlead.config.load import build
from fairlead.dialects.nvidia.command import read_command_line
from fairlead.dialects.nvidia.flags import FLAGS
from fairlead.kit.clock import SystemClock

OURS = ("backends[", "rules[", "kubelet.", "status.", "driverRootMount", "podResources")


def backend(*args: str, **environ: str) -> dict[str, object]:
    config = read_command_line(args, environ).translate().config
    (options,) = build(dict(config), "test").config.backends
    open_backend({key: value for key, value in options.items() if key != "kind"}, SystemClock())  # takes them all
    return options


def refusal(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    assert dialect.main("nvidia", [*args, "--print-config"]) == 1
    return capsys.readouterr().err


def test_an_empty_driver_root_is_the_root_of_this_container():
    assert backend("--driver-root-ctr-path=")["driverRootMount"] == "/"
    assert backend(DRIVER_ROOT_CTR_PATH="")["driverRootMount"] == "/"
    assert backend(CONTAINER_DRIVER_ROOT="")["driverRootMount"] == "/"


def test_dots_in_a_driver_root_are_resolved():
    assert backend("--driver-root-ctr-path=/run/../driver")["driverRootMount"] == "/driver"


def test_a_relative_driver_root_is_for_the_lenient(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.chdir(tmp_path)
    assert backend("--lenient", "--driver-root-ctr-path=driver")["driverRootMount"] == f"{tmp_path}/driver"
    assert "--driver-root-ctr-path 'driver' is not an absolute path" in refusal(capsys, "--driver-root-ctr-path=driver")


@pytest.mark.parametrize("name", ["cdi-feature-flags", "cdi-disable-hooks"])
@pytest.mark.parametrize("empty", ["", " ", ","])
def test_an_empty_list_of_cdi_words_says_nothing(name: str, empty: str):
    variable = name.upper().replace("-", "_")
    assert backend(f"--{name}={empty}") == {"kind": "nvidia"} == backend(**{variable: empty})


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("DRIVER_ROOT_CTR_PATH", "relative"),
        ("NVIDIA_DRIVER_ROOT", "relative"),
        ("CDI_FEATURE_FLAGS", "bogus"),
        ("CDI_DISABLE_HOOKS", "bogus"),
        ("KUBELET_SOCKET", "relative"),
        ("MIG_STRATEGY", "bogus"),
        ("DEVICE_LIST_STRATEGY", "bogus"),
        ("IMEX_CHANNEL_IDS", "7"),
        ("FAIRLEAD_PLUGIN_DIR", "relative"),
        ("FAIRLEAD_STATUS_SOCKET", "relative"),
        ("FAIRLEAD_POD_RESOURCES", "relative"),
    ],
)
def test_a_variable_at_fault_is_named(
    variable: str, value: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(variable, value)
    assert refusal(capsys).startswith(f"fairlead nvidia: {variable}: ")


def test_a_key_of_the_config_file_at_fault_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    file = tmp_path / "config.yaml"
    file.write_text("flags: {plugin: {containerDriverRoot: relative}}")
    said = refusal(capsys, f"--config-file={file}")
    assert said.startswith(f"fairlead nvidia: {file}: flags.plugin.containerDriverRoot: ")


def test_a_file_at_fault_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    file = tmp_path / "config.yaml"
    block = "{resources: [{name: gpu, replicas: 2}]}"
    file.write_text(f"sharing: {{mps: {block}, timeSlicing: {block}}}")
    said = refusal(capsys, f"--config-file={file}", "--mps-root=/run/nvidia/mps")
    assert said.startswith(f"fairlead nvidia: {file}: sharing has both mps and timeSlicing")


def test_a_flag_at_fault_is_not_blamed_on_the_config_file(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    file = tmp_path / "config.yaml"
    file.write_text("version: v1")
    for flag in ("--plugin-dir", "--driver-root"):
        said = refusal(capsys, f"--config-file={file}", f"{flag}=relative")
        assert said.startswith(f"fairlead nvidia: {flag}")
        assert str(file) not in said


def test_a_relative_directory_of_mps_is_refused_by_its_flag(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    file = tmp_path / "config.yaml"
    file.write_text("sharing: {mps: {resources: [{name: gpu, replicas: 2}]}}")
    for lenient in ([], ["--lenient"]):
        said = refusal(capsys, *lenient, f"--config-file={file}", "--mps-root=mps")
        assert said.startswith("fairlead nvidia: --mps-root 'mps' is not an absolute path")


def test_cdi_hooks_need_a_program(capsys: pytest.CaptureFixture[str]):
    said = refusal(capsys, "--device-list-strategy=cdi-cri", "--nvidia-cdi-hook-path=")
    assert said.startswith("fairlead nvidia: --nvidia-cdi-hook-path is empty")
    assert backend("--nvidia-cdi-hook-path=")["cdi"] == {"hook": ""}
    backend("--device-list-strategy=cdi-cri", "--nvidia-cdi-hook-path=", "--cdi-disable-hooks=all")


@pytest.mark.parametrize("value", ["", " ", "relative", "/a/../b", ",", "x" * 200, "/" + "x" * 200])
@pytest.mark.parametrize("flag", [flag.name for flag in FLAGS])
def test_no_error_speaks_of_keys_that_are_not_theirs(flag: str, value: str, capsys: pytest.CaptureFixture[str]):
    for lenient in ([], ["--lenient"]):
        if dialect.main("nvidia", [*lenient, f"--{flag}={value}", "--print-config"]):
            said = capsys.readouterr().err
            assert not any(word in said for word in OURS)

"""Settings: what NVIDIA's own plugin took and refused, over all recordings, is what ours takes and refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.vectors import nvidia

from fairlead.config.load import build
from fairlead.dialects.invocation import Invocation
from fairlead.dialects.nvidia import v1
from fairlead.dialects.nvidia.command import read_command_line
from fairlead.dialects.nvidia.settings import settle
from fairlead.model.errors import FairleadError

CASES = nvidia()
CONFIG = "/config/config.yaml"
# Refused by NVIDIA's plugin for what it found on the machine, not for what was written.
BY_THE_MACHINE = {
    "064-mig-mixed-rtxpro-mig-profile17",
    "083-no-library-cdi",
    "084-no-library-cdi-nofail",
    "425-libpath-usr_lib",
    "426-libpath-opt_nvidia",
    "435-kubelet-socket-missing-dir",
}
# A difference that is meant: docs/guide/nvidia.md has the reasons.
REFUSED_ALWAYS = {"436-kubelet-socket-relative"}
REFUSED_STRICTLY = {
    "196-env-NVIDIA_DRIVER_ROOT-relative_root",
    "205-cli-positional-after-bool",
    "254-file-two-docs",
    "255-file-dup-key",
    "287-ts-name-52",
    "288-ts-name-47-rename",
    "303-ts-dup-resource",
    "347-mps-other-resource",
    "352-mps-and-ts",
    "391-cdi-prefix-noslash",
    "392-cdi-prefix-a_b_c_",
    "393-cdi-prefix-_",
}


def order(name: str, directory: Path, *, lenient: bool) -> Invocation:
    case = CASES[name]
    here = str(directory / "config.yaml")
    if case.config_file is not None:
        (directory / "config.yaml").write_text(case.config_file)
    args = [word.replace(CONFIG, here) for word in case.argv[1:]]
    env = {key: value.replace(CONFIG, here) for key, value in case.env.items()}
    return read_command_line([*(["--lenient"] if lenient else []), *args], env)


def refuses(name: str, directory: Path, *, lenient: bool) -> bool:
    try:
        asked = order(name, directory, lenient=lenient)
        if not asked.parsed.values["version"]:
            build(asked.translate().config, "test")
    except FairleadError as error:
        assert str(error)
        return True
    return False


@pytest.mark.parametrize("name", CASES)
def test_what_nvidia_refuses_ours_refuses_and_nothing_else(name: str, tmp_path: Path):
    result = CASES[name].result
    refused = result.state == "exited" and result.effective_config is None and result.exit_code != 0
    expected = (refused and name not in BY_THE_MACHINE) or name in REFUSED_ALWAYS
    assert refuses(name, tmp_path, lenient=True) is expected
    assert refuses(name, tmp_path, lenient=False) is (expected or name in REFUSED_STRICTLY)


FLAG_NAMES = {
    "mig-strategy": "migStrategy",
    "fail-on-init-error": "failOnInitError",
    "mps-root": "mpsRoot",
    "driver-root": "nvidiaDriverRoot",
    "gdrcopy-enabled": "gdrcopyEnabled",
    "gds-enabled": "gdsEnabled",
    "mofed-enabled": "mofedEnabled",
    "device-discovery-strategy": "deviceDiscoveryStrategy",
}
PLUGIN_NAMES = {
    "pass-device-specs": "passDeviceSpecs",
    "device-id-strategy": "deviceIDStrategy",
    "cdi-annotation-prefix": "cdiAnnotationPrefix",
    "nvidia-cdi-hook-path": "nvidiaCTKPath",
    "driver-root-ctr-path": "containerDriverRoot",
    "shared-devices-allocation-policy": "sharedDevicesAllocationPolicy",
}


@pytest.mark.parametrize(
    "name", [name for name, case in CASES.items() if case.result.effective_config and name not in REFUSED_ALWAYS]
)
def test_the_settings_in_force_are_those_that_nvidia_logged(name: str, tmp_path: Path):
    asked = order(name, tmp_path, lenient=True)
    path = str(asked.parsed.values["config-file"])
    ours = settle(asked.parsed, v1.load(path, lenient=True))
    theirs = CASES[name].result.effective_config
    assert theirs is not None
    flags, plugin = theirs["flags"], theirs["flags"]["plugin"]
    assert {key: ours[key] for key in FLAG_NAMES} == {key: flags[word] for key, word in FLAG_NAMES.items()}
    assert {key: ours[key] for key in PLUGIN_NAMES} == {key: plugin[w] for key, w in PLUGIN_NAMES.items()}
    assert list(ours["device-list-strategy"]) == (plugin["deviceListStrategy"] or [])
    assert list(ours["imex-channel-ids"]) == (theirs["imex"].get("channelIDs") or [])
    assert (ours["dev-root"] or ours["driver-root"]) == flags["nvidiaDevRoot"]

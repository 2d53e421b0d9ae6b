"""Odd values of flags and variables, given to NVIDIA's own plugin and to ours: both serve, or both end."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from tests.peers.nvidia.place import needs_root
from tests.peers.nvidia.programs import Program, nvidia_plugin, our_plugin
from tests.peers.nvidia.replay import replay
from tests.vectors import Vector, nvidia

MACHINE = "377-cdi-full-driver-drm"
VALUES = {"empty": "", "blank": " ", "relative": "driver-root", "dots": "/run/../driver-root"}
TEXTS = (
    "driver-root",
    "dev-root",
    "device-list-strategy",
    "device-id-strategy",
    "cdi-annotation-prefix",
    "nvidia-cdi-hook-path",
    "driver-root-ctr-path",
    "mps-root",
    "device-discovery-strategy",
    "mig-strategy",
    "config-file",
    "cdi-feature-flags",
)
SWITCHES = ("fail-on-init-error", "pass-device-specs", "gds-enabled", "imex-required", "imex-channel-ids")
VARIABLES = {"driver-root": "NVIDIA_DRIVER_ROOT", "dev-root": "NVIDIA_DEV_ROOT"}
# These are refused unless --lenient is given: docs/guide/nvidia.md says so.
STRICT = {
    ("driver-root", "blank"),
    ("driver-root", "relative"),
    ("driver-root-ctr-path", "blank"),
    ("driver-root-ctr-path", "relative"),
    ("cdi-feature-flags", "relative"),
    ("cdi-feature-flags", "dots"),
}
CASES = [
    (flag, value)
    for flag in (*TEXTS, *SWITCHES)
    for value in VALUES
    if flag not in SWITCHES or value in {"empty", "blank"}
]

pytestmark = [
    pytest.mark.go,
    pytest.mark.peers,
    pytest.mark.timeout(600),  # the first of them may have to build the plugin
    pytest.mark.skipif(needs_root() is not None, reason=str(needs_root())),
]


async def end_of(program: Program, flag: str, value: str, *, variable: bool) -> str:
    """How it began: serving, or exited."""
    recorded = nvidia()[MACHINE]
    name = VARIABLES.get(flag, flag.upper().replace("-", "_"))
    given: Vector = msgspec.structs.replace(
        recorded,
        argv=["nvidia-device-plugin", *([] if variable else [f"--{flag}={value}"])],
        env={name: value} if variable else {},
        config_file=None,
        result=msgspec.structs.replace(recorded.result, resources={}, actions=None),
    )
    return (await replay(program, given)).state


@pytest.mark.parametrize("variable", [False, True], ids=["flag", "variable"])
@pytest.mark.parametrize(("flag", "value"), CASES)
async def test_what_nvidia_serves_with_ours_serves_with(flag: str, value: str, *, variable: bool) -> None:
    theirs = await end_of(await asyncio.to_thread(nvidia_plugin), flag, VALUES[value], variable=variable)
    assert await end_of(our_plugin("--lenient"), flag, VALUES[value], variable=variable) == theirs
    strictly = await end_of(our_plugin(), flag, VALUES[value], variable=variable)
    assert strictly == ("exited" if (flag, value) in STRICT else theirs)

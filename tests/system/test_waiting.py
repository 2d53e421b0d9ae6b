"""`wait_for`: a plugin that must come first keeps the kubelet from hearing of it, and says what it waits for."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.system.process import program
from tests.system.rig import ask_status
from tests.system.serving import serving

import fairlead
from fairlead.fronts.deviceplugin import endpoint
from fairlead.testing import Kubelet

LED = "example.com/led"
SAMPLE = "example.com/resource"
EXAMPLE = Path(__file__).parents[2] / "examples" / "sample_device_plugin.py"


class Gated(fairlead.Plugin):
    resource = LED

    def __init__(self, reason: Any = "the driver to load") -> None:
        self.reason = reason
        self.asked = asyncio.Event()

    def discover(self) -> list[fairlead.Device]:
        return [fairlead.Device("led0")]

    async def wait_for(self) -> Any:
        self.asked.set()
        if isinstance(self.reason, Exception):
            raise self.reason
        return self.reason


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(endpoint, "LOOK_AGAIN_S", 0.01)


def registered(kubelet: Kubelet) -> int:
    return sum(call.method == "Register" for call in kubelet.calls)


async def asked_again(plugin: Gated, times: int = 3) -> None:
    """Asked some more: whatever one answer would lead to has happened by now."""
    async with asyncio.timeout(15):
        for _ in range(times):
            plugin.asked.clear()
            await plugin.asked.wait()


async def test_nothing_is_registered_before_it_may_and_the_reason_is_told(kubelet: Kubelet):
    plugin = Gated()
    async with serving(kubelet, plugin) as (daemon, facts):
        await asked_again(plugin)
        assert registered(kubelet) == 0
        (line,) = (await ask_status(daemon)).resources
        assert (line.phase, line.reason) == ("register", "the driver to load")
        plugin.reason = None
        await kubelet.wait_for_allocatable(LED, 1)
        assert [fact.keys["reason"] for fact in facts if fact.kind == "waiting"] == ["the driver to load"]
        (line,) = (await ask_status(daemon)).resources
        assert line.reason == ""


async def test_a_restarted_kubelet_waits_for_it_again(kubelet: Kubelet):
    plugin = Gated(None)
    async with serving(kubelet, plugin):
        await kubelet.wait_for_allocatable(LED, 1)
        plugin.reason = "an operator"
        before = registered(kubelet)
        await kubelet.restart()
        await asked_again(plugin)
        assert registered(kubelet) == before
        plugin.reason = None
        await kubelet.wait_for_allocatable(LED, 1)


@pytest.mark.parametrize(
    ("reason", "words"),
    [(OSError("no such bus"), "OSError: no such bus"), (7, "wait_for gave 7; give None, or what to wait for")],
)
async def test_an_error_or_nonsense_is_a_reason_to_wait(kubelet: Kubelet, reason: Any, words: str):
    plugin = Gated(reason)
    async with serving(kubelet, plugin) as (_, facts):
        await asked_again(plugin)
        assert registered(kubelet) == 0
        assert any(words in fact.keys["reason"] for fact in facts if fact.kind == "waiting")
        plugin.reason = None
        await kubelet.wait_for_allocatable(LED, 1)


async def test_the_plugin_watcher_is_put_off_too(kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FAIRLEAD_REGISTRATION", "watcher")
    monkeypatch.setenv("FAIRLEAD_WATCHER_DIR", str(kubelet.registry_dir))
    plugin = Gated()
    async with serving(kubelet, plugin):
        await asked_again(plugin, times=2)
        assert kubelet.node().allocatable.get(LED, 0) == 0
        plugin.reason = None
        await kubelet.wait_for_allocatable(LED, 1)


def environment(kubelet: Kubelet, **more: str) -> dict[str, str]:
    return {"PLUGIN_SOCK_DIR": f"{kubelet.plugin_dir}/", **more}


async def test_the_sample_plugin_mounts_a_file_for_each_device(kubelet: Kubelet):
    async with program(str(EXAMPLE), env=environment(kubelet)):
        await kubelet.wait_for_allocatable(SAMPLE, 2)
        pod = await kubelet.run_pod("p", {"main": {SAMPLE: 1}})
        (mount,) = pod.containers["main"].mounts.values()
        assert Path(mount.host_path).name in {"Dev-1", "Dev-2"}


async def test_the_sample_plugin_registers_when_its_control_file_goes_and_never_else(kubelet: Kubelet):
    control = kubelet.plugin_dir / "sample" / "registration"
    control.parent.mkdir()
    control.touch()
    env = environment(kubelet, REGISTER_CONTROL_FILE=str(control))
    async with program(str(EXAMPLE), env=env) as plugin:
        await plugin.says("to be deleted")
        assert registered(kubelet) == 0
        control.unlink()
        await kubelet.wait_for_allocatable(SAMPLE, 2)
        before = registered(kubelet)
        plugin.lines.clear()
        await kubelet.restart()
        await plugin.says("to be deleted")
        assert registered(kubelet) == before
    async with program(str(EXAMPLE), env=env) as plugin:  # no file at the start: nothing to delete
        await plugin.says("to be deleted")
        assert registered(kubelet) == before

"""The library: a device plugin in ten lines, and what its author can rely on."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.system.process import program
from tests.system.serving import serving

import fairlead
from fairlead.library import make_daemon
from fairlead.model.errors import UsageError
from fairlead.testing import Kubelet

LED = "example.com/led"


async def test_a_decorated_function_is_a_plugin(kubelet: Kubelet):
    @fairlead.plugin(LED)
    def leds() -> list[fairlead.Device]:
        return [fairlead.Device(id=f"led{n}", nodes=(fairlead.DeviceNode(f"/dev/led{n}"),)) for n in range(2)]

    async with serving(kubelet, leds):
        await kubelet.wait_for_allocatable(LED, 2)
        pod = await kubelet.run_pod("blink", {"main": {LED: 1}})
        assert pod.phase == "Running", pod.message
        (path,) = pod.containers["main"].nodes
        assert path.startswith("/dev/led")


async def test_a_subclass_may_check_edit_and_prepare(kubelet: Kubelet):
    class Leds(fairlead.Plugin):
        resource = LED
        replicas = 2
        placement = fairlead.Strategy.SPREAD
        broken = False
        prepared: list[str] = []

        def discover(self) -> Iterator[fairlead.Device]:
            yield fairlead.Device(id="led0")
            yield fairlead.Device(id="led1")

        def links(self) -> fairlead.Links:
            return fairlead.Links()

        def check(self, device: fairlead.Device) -> str | None:
            return "burnt out" if self.broken and device.id == "led1" else None

        def edits(self, grant: fairlead.Grant) -> fairlead.Edits:
            return fairlead.Edits(env={"LEDS": ",".join(device.id for device in grant.devices)})

        async def prepare(self, grant: fairlead.Grant) -> None:
            self.prepared.append(grant.slots[0])

    leds = Leds()
    async with serving(kubelet, leds) as (daemon, _):
        await kubelet.wait_for_allocatable(LED, 4)
        pod = await kubelet.run_pod("blink", {"main": {LED: 2}})
        assert pod.containers["main"].env == {"LEDS": "led0,led1"}
        assert leds.prepared == ["led0::0"]
        leds.broken = True
        (source,) = daemon.engine.sources.live.values()
        await source.pulse()
        await kubelet.wait_for_allocatable(LED, 2)


async def test_a_plugin_that_exits_does_not_end_the_daemon(kubelet: Kubelet):
    class Rude(fairlead.Plugin):
        resource = LED
        rude = False

        async def discover(self) -> list[fairlead.Device]:
            return [fairlead.Device(id="led0")] if not self.rude else sys.exit(3)

        async def check(self, _device: fairlead.Device) -> None:
            if self.rude:
                raise asyncio.CancelledError

        def edits(self, _grant: fairlead.Grant) -> fairlead.Edits:
            return fairlead.Edits() if not self.rude else sys.exit(3)

        def prepare(self, _grant: fairlead.Grant) -> None:
            if self.rude:
                sys.exit(3)

    rude = Rude()
    async with serving(kubelet, rude) as (daemon, facts):
        await kubelet.wait_for_allocatable(LED, 1)
        rude.rude = True
        (source,) = daemon.engine.sources.live.values()
        await source.scan()
        await source.pulse()
        assert "discover raised SystemExit: 3" in source.problem
        daemon.journal.flush()
        assert [fact.keys["device"] for fact in facts if fact.kind == "probe-failed"] == ["led0"]
        pod = await kubelet.run_pod("refused", {"main": {LED: 1}})
        assert "edits raised SystemExit: 3" in pod.message
        rude.rude = False
        await source.scan()
        assert source.problem == ""
        assert (await kubelet.run_pod("served", {"main": {LED: 1}})).containers


async def test_coroutines_and_async_generators_will_do(kubelet: Kubelet):
    class Coroutine(fairlead.Plugin):
        resource = "example.com/one"

        async def discover(self) -> list[fairlead.Device]:
            return [fairlead.Device(id="a")]

    class Generator(fairlead.Plugin):
        resource = "example.com/two"

        async def discover(self) -> Any:
            yield fairlead.Device(id="b")

    async with serving(kubelet, Coroutine(), Generator()):
        await kubelet.wait_for_allocatable("example.com/one", 1)
        await kubelet.wait_for_allocatable("example.com/two", 1)


async def test_a_prepare_that_raises_keeps_the_container_from_starting(kubelet: Kubelet):
    class Stubborn(fairlead.Plugin):
        resource = LED

        def discover(self) -> list[fairlead.Device]:
            return [fairlead.Device(id="led0")]

        def prepare(self, grant: fairlead.Grant) -> None:
            raise RuntimeError("no power")

    async with serving(kubelet, Stubborn()):
        await kubelet.wait_for_allocatable(LED, 1)
        pod = await kubelet.run_pod("blink", {"main": {LED: 1}})
        assert pod.containers["main"].reason == "CreateContainerConfigError"
        assert "no power" in pod.containers["main"].message


async def test_a_discover_that_fails_later_keeps_the_devices(kubelet: Kubelet):
    class Moody(fairlead.Plugin):
        resource = LED
        mood = "good"

        def discover(self) -> list[Any]:
            if self.mood == "bad":
                raise OSError("bus error")
            if self.mood == "odd":
                return ["led0"]
            return [fairlead.Device(id="led0")]

    moody = Moody()
    async with serving(kubelet, moody) as (daemon, facts):
        await kubelet.wait_for_allocatable(LED, 1)
        (source,) = daemon.engine.sources.live.values()
        for mood, words in (("bad", "bus error"), ("odd", "which is not a Device")):
            moody.mood = mood
            await source.scan()
            daemon.journal.flush()
            assert words in [fact for fact in facts if fact.kind == "scan-failed"][-1].keys["reason"]
        assert kubelet.node().allocatable[LED] == 1


@pytest.mark.parametrize(
    ("plugins", "words"),
    [
        ((), "at least one plugin"),
        ((print,), "is not a fairlead.Plugin"),
        ((fairlead.plugin("led")(list),), "vendor domain"),
    ],
)
def test_mistakes_are_explained(plugins, words):
    with pytest.raises(fairlead.FairleadError, match=words):
        make_daemon(plugins)


async def test_a_plugin_without_discover_is_told_so():
    with pytest.raises(UsageError, match="has no discover"):
        fairlead.Plugin().discover()


async def test_run_ends_with_one_line_not_a_traceback(kubelet_root: Path):
    script = kubelet_root / "p.py"
    script.write_text("import fairlead\nfairlead.run()\n")
    async with program(str(script)) as plugin:
        assert await plugin.ends() == 1
        assert plugin.lines == ["fairlead: run() needs at least one plugin"]


async def test_the_plugin_of_the_readme_runs_as_it_stands_there(kubelet: Kubelet, kubelet_root: Path):
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    source = readme.split("```python\n", 1)[1].split("```", 1)[0]
    assert len([line for line in source.splitlines() if line.strip()]) <= 10
    devices = kubelet_root / "dev"
    devices.mkdir()
    for number in range(3):
        (devices / f"led{number}").touch()
    script = kubelet_root / "leds.py"
    script.write_text(source.replace("/dev", str(devices)))
    env = {"FAIRLEAD_PLUGIN_DIR": str(kubelet.plugin_dir)}
    async with program(str(script), env=env) as plugin:
        await kubelet.wait_for_allocatable(LED, 3)
        pod = await kubelet.run_pod("blink", {"main": {LED: 2}})
        assert pod.phase == "Running", pod.message
        assert len(pod.containers["main"].nodes) == 2
        await kubelet.restart()
        await kubelet.wait_for_allocatable(LED, 3)
        plugin.send(signal.SIGTERM)
        assert await plugin.ends() == 0


def test_the_public_names_are_there_and_no_others():
    assert set(fairlead.__all__) == set(dir(fairlead))
    for name in fairlead.__all__:
        assert getattr(fairlead, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        fairlead.nope  # noqa: B018 - the access is the test


async def test_the_example_of_serial_ports_runs(kubelet: Kubelet, kubelet_root: Path):
    ports = kubelet_root / "dev"
    ports.mkdir()
    (ports / "ttyUSB0").touch()
    example = Path(__file__).parents[2] / "examples" / "serial_ports.py"
    env = {"FAIRLEAD_PLUGIN_DIR": str(kubelet.plugin_dir), "DEV_ROOT": str(ports)}
    async with program(str(example), env=env):
        await kubelet.wait_for_allocatable("example.com/serial-port", 1)
        pod = await kubelet.run_pod("p", {"main": {"example.com/serial-port": 1}})
        assert pod.containers["main"].env == {"SERIAL_PORTS": f"{ports}/ttyUSB0"}

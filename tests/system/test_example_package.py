"""The example of a third-party package, as its users have it: built, installed, and named in a configuration."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.system.process import fairlead, program

from fairlead.testing import Kubelet

EXAMPLE = Path(__file__).parents[2] / "examples/leds"
LED = "example.com/led"
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "-q")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the package, and nothing of its sources beside it."""
    place = tmp_path_factory.mktemp("package")
    source = place / "source"
    source.mkdir()
    for name in ("pyproject.toml", "fairlead_leds.py"):
        (source / name).write_bytes((EXAMPLE / name).read_bytes())
    offline = ("--no-index", "--no-deps")
    subprocess.run([*PIP, "wheel", *offline, "--no-build-isolation", "-w", place, source], check=True)
    (wheel,) = place.glob("fairlead_leds-*.whl")
    subprocess.run([*PIP, "install", *offline, "--target", place / "site", wheel], check=True)
    return place / "site"


@pytest.fixture
def leds(tmp_path: Path) -> Path:
    for name in ("input0::capslock", "platform::mute"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "brightness").write_text("0\n")
    return tmp_path


def configure(root: Path, leds: Path, kubelet: Kubelet, kind: str = "leds", option: str = "directory") -> str:
    config = root / "fairlead.yaml"
    config.write_text(
        f"backends: [{{kind: {kind}, {option}: '{leds}'}}]\nrules: [{{resource: {LED}}}]\n"
        f"kubelet: {{directory: {kubelet.plugin_dir}, podResources: {kubelet.podresources_socket}}}\n"
        f"status: {{socket: {root}/fl.sock}}\n"
    )
    return str(config)


async def test_an_installed_package_serves_its_devices(
    installed: Path, leds: Path, kubelet: Kubelet, kubelet_root: Path
):
    env = {"PYTHONPATH": str(installed)}
    config = configure(kubelet_root, leds, kubelet)
    async with program("-m", "fairlead", "run", "--config", config, env=env):
        await kubelet.wait_for_allocatable(LED, 2)
        pod = await kubelet.run_pod("blink", {"main": {LED: 1}})
        assert pod.phase == "Running", pod.message
        assert pod.containers["main"].env["LEDS"].startswith(str(leds))
        code, shown, _ = await fairlead("status", "--socket", f"{kubelet_root}/fl.sock")
        assert code == 0, shown
        assert "platform::mute" in shown
        code, shown, _ = await fairlead("status", "--json", "--socket", f"{kubelet_root}/fl.sock")
        assert '"name": "leds"' in shown


@pytest.mark.parametrize(("kind", "beside"), [("led", True), ("leds", False)])
async def test_an_unknown_kind_names_those_that_are_installed(
    kind: str, beside: bool, installed: Path, leds: Path, kubelet: Kubelet, kubelet_root: Path
):
    env = {"PYTHONPATH": str(installed)} if beside else {}
    code, _, said = await fairlead("validate", "--config", configure(kubelet_root, leds, kubelet, kind), env=env)
    assert code == 2
    assert f"backends[0]: no backend of the kind '{kind}'" in said
    assert ("did you mean 'leds'" in said) is beside
    assert "Known: amd, " in said
    assert ("leds, nvidia, paths, sim" in said) is beside


async def test_options_that_do_not_fit_are_named(installed: Path, leds: Path, kubelet: Kubelet, kubelet_root: Path):
    config = configure(kubelet_root, leds, kubelet, option="directroy")
    code, _, said = await fairlead("validate", "--config", config, env={"PYTHONPATH": str(installed)})
    assert (code, "directroy" in said, "directory" in said, "Traceback" in said) == (2, True, True, False)


def test_the_package_passes_its_own_test(installed: Path):
    test = EXAMPLE / "test_fairlead_leds.py"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--rootdir={EXAMPLE}", str(test)]
    command.append(f"--config-file={EXAMPLE / 'pyproject.toml'}")
    done = subprocess.run(command, env={"PYTHONPATH": str(installed)}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

"""The image itself, built here from deploy/Containerfile and run without an engine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from deploy import archive, image, rootfs, verify

from fairlead.programs.configmanager import find_processes
from fairlead.testing import Kubelet

pytestmark = [pytest.mark.image, pytest.mark.timeout(900, func_only=False)]

ROOT = Path(__file__).resolve().parents[2]
REVISION = image.Revision("a-test", "1700000000")
GPU = "example.com/gpu"
CONFIG = f"backends: [{{kind: sim, fleet: h100x8}}]\nrules: [{{resource: {GPU}}}]\n"
PLUGIN = """
import fairlead

@fairlead.plugin("example.com/led")
def leds():
    yield fairlead.Device("led-0")

print(leds.resource)
"""


def give_up(reason: str) -> NoReturn:
    """Where CI could run it, a test that does not run is a failure."""
    if os.environ.get("CI") == "true" and sys.platform == "linux" and os.geteuid() == 0:
        pytest.fail(f"CI must be able to build the image: {reason}", pytrace=False)
    pytest.skip(f"{reason}; `python -m tests.image.provision` may help")


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> image.Built:
    if reason := image.lacking():
        give_up(reason)
    return image.build(tmp_path_factory.mktemp("image"), revision=REVISION)


@pytest.fixture
def root(built: image.Built, kubelet_root: Path) -> Path:
    """The image, unpacked; short, because sockets are made in it."""
    archive.read(built.archive).unpack(kubelet_root / "i")
    return kubelet_root / "i"


@pytest.fixture
def started(root: Path) -> Iterator[list[subprocess.Popen[str]]]:
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        process.terminate()
        process.communicate(timeout=60)


def test_it_holds_what_the_guide_promises(built: image.Built, capsys: pytest.CaptureFixture[str]):
    report = verify.check(built.archive, built.bill, image.LOCAL, image.version())
    assert report.faults == ()
    with capsys.disabled():
        print(f"\n{report.text(built.archive, built.name)}")


def test_what_changes_with_fairlead_is_a_layer_of_its_own(built: image.Built):
    read = archive.read(built.archive)
    assert len(read.layers) == 2
    assert len(read.layers[1]) < len(read.layers[0]) / 2


def test_the_same_sources_give_the_same_image(built: image.Built, tmp_path: Path):
    assert image.build(tmp_path, revision=REVISION).archive.read_bytes() == built.archive.read_bytes()


def test_the_bill_of_materials_names_the_pins(built: image.Built):
    verify.check(built.archive, built.bill, image.LOCAL, image.version())
    parts = json.loads(built.bill.read_text())["components"]
    pins = dict(line.split("==") for line in (ROOT / "requirements/constraints.txt").read_text().splitlines())
    found = {part["name"]: part["version"] for part in parts if part["bom-ref"].startswith("pkg:pypi/")}
    assert found == {name: pins[name] for name in ("click", "hpack", "msgspec", "PyYAML")}


def test_the_containerfile_is_clean():
    tool = shutil.which("hadolint", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if tool is None:
        give_up("no hadolint on this machine")
    done = subprocess.run([tool, ROOT / image.FILE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_a_plugin_of_ones_own_runs_on_it_without_being_root(root: Path):
    (root / "plugin.py").write_text(PLUGIN)
    done = verify.run(root, "/usr/local/bin/python3", "/plugin.py", user=rootfs.USER)
    assert (done.returncode, done.stdout) == (0, "example.com/led\n"), done.stderr


def test_a_container_that_runs_as_nobody_else_has_a_name(root: Path):
    asked = "import os, pwd; print(pwd.getpwuid(os.getuid()).pw_name)"
    assert verify.run(root, "/usr/local/bin/python3", "-c", asked, user=rootfs.USER).stdout == "fairlead\n"


async def test_the_daemon_in_it_serves_a_kubelet(root: Path, started: list[subprocess.Popen[str]]):
    (root / "etc/fairlead/fairlead.yaml").write_text(CONFIG)
    async with Kubelet(root / "var/lib/kubelet") as kubelet:
        started.append(verify.start(root, "/usr/bin/fairlead", "run", "--config", "/etc/fairlead/fairlead.yaml"))
        await kubelet.wait_for_allocatable(GPU, 8, timeout_s=60)
        shown = verify.run(root, "/usr/bin/fairlead", "status")
        assert (shown.returncode, GPU in shown.stdout) == (0, True), shown.stderr


async def test_nvidias_config_manager_finds_the_plugin_by_its_name(root: Path, started: list[subprocess.Popen[str]]):
    """Its chart says PROCESS_TO_SIGNAL=nvidia-device-plugin, and the process is an interpreter."""
    async with Kubelet(root / "var/lib/kubelet"):
        before = set(find_processes("nvidia-device-plugin"))
        plugin = verify.start(root, "/usr/bin/nvidia-device-plugin", "--fail-on-init-error=false")
        started.append(plugin)
        assert plugin.stderr is not None
        assert plugin.stderr.readline()  # it is up, and not the chroot that became it
        assert plugin.pid in set(find_processes("nvidia-device-plugin")) - before  # another test may start one too

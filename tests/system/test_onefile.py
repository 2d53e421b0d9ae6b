"""fairlead.pyz as people get it: built once, run as a command, as a daemon, and installed by itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from deploy.onefile.build import build

from fairlead.testing import Kubelet

CONFIG = "backends: [{kind: sim}]\nrules: [{resource: example.com/gpu}]\n"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("onefile") / "fairlead.pyz"
    build(output)
    return output


def run(archive: Path, cache: Path, *args: str, code: int = 0, **env: str) -> str:
    # -I: what is installed beside it, and the variables of this shell, do not count.
    done = subprocess.run(
        [sys.executable, "-I", archive, *args],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.environ["PATH"], "FAIRLEAD_ONEFILE_CACHE": str(cache), **env},
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.timeout(180)
async def test_one_file_is_a_command_and_a_daemon(archive: Path, tmp_path: Path, kubelet: Kubelet):
    cache = tmp_path / "cache"
    assert run(archive, cache, "version").startswith("fairlead ")
    assert run(archive, cache, "version").startswith("fairlead ")  # from what is unpacked
    assert "no place to unpack to: /proc/1/x: " in run(archive, Path("/proc/1/x"), "version", code=3)
    (tmp_path / "f.yaml").write_text(CONFIG)
    command = [sys.executable, "-I", str(archive), "run", "--config", str(tmp_path / "f.yaml")]
    env = {
        "FAIRLEAD_ONEFILE_CACHE": str(cache),
        "FAIRLEAD_PLUGIN_DIR": str(kubelet.plugin_dir),
        "FAIRLEAD_POD_RESOURCES": str(kubelet.podresources_socket),
        "FAIRLEAD_STATUS_SOCKET": str(tmp_path / "s.sock"),
    }
    with (tmp_path / "log").open("wb") as log:
        daemon = subprocess.Popen(command, env=env, stdout=log, stderr=log)  # noqa: ASYNC220 - it is no child to wait for
    try:
        await kubelet.wait_for(lambda: kubelet.node().allocatable.get("example.com/gpu") == 8, 50)
        assert "streaming" in run(archive, cache, "status", "--socket", str(tmp_path / "s.sock"))
    finally:
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(20) == 0, (tmp_path / "log").read_text()


@pytest.mark.timeout(180)
def test_it_installs_itself_and_is_removed_again(archive: Path, tmp_path: Path):
    (tmp_path / "root").mkdir()
    (tmp_path / "f.yaml").write_text(CONFIG)
    where, cache = ("install-host", "--root", str(tmp_path / "root")), tmp_path / "cache"
    if sys.executable.startswith(("/root/", "/home/")):  # a service does not see such a Python
        said = run(archive, cache, *where, "--config", str(tmp_path / "f.yaml"), code=3)
        assert "below a home directory" in said
        return
    run(archive, cache, *where, "--config", str(tmp_path / "f.yaml"))
    assert (tmp_path / "root/usr/local/lib/fairlead/fairlead.pyz").read_bytes() == archive.read_bytes()
    unit = (tmp_path / "root/etc/systemd/system/fairlead.service").read_text()
    assert f"ExecStart={sys.executable} -I /usr/local/lib/fairlead/fairlead.pyz run" in unit
    assert "Environment=FAIRLEAD_ONEFILE_CACHE=%C/fairlead" in unit
    run(archive, cache, *where, "--uninstall")
    assert not [path for path in (tmp_path / "root").rglob("*") if path.is_file()]

"""Devices of the paths backend under a true kubelet: they open in the container, come, go, and stay with their pod."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.node.cluster import Cluster
from tests.node.conftest import Measure
from tests.node.daemon import HEALTH, Fairlead
from tests.node.rig.steps import until
from tests.node.usbbus import PRODUCT, VENDOR, Bus

Make = Callable[[dict[str, Any]], Fairlead]
ZERO = os.makedev(1, 5)  # reads zeros: a device that can be tried anywhere
KEPT_S = 120.0  # a slot that left stays listed for a minute


def plug(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    os.mknod(path, stat.S_IFCHR | 0o666, ZERO)


def config(resource: str, *entries: dict[str, Any], **rule: Any) -> dict[str, Any]:
    backend = {"kind": "paths", "devices": list(entries)}
    return {"backends": [backend], "rules": [{"resource": resource, **rule}], "health": HEALTH}


def read(path: object) -> str:
    return f"head -c 2 {path} | od -An -tx1"


def test_nodes_come_and_go_and_capacity_follows_without_a_restart(
    cluster: Cluster, fairlead: Make, resource: str, tmp_path: Path, measure: Measure
):
    plug(tmp_path / "dev/zero0")
    daemon = fairlead(config(resource, {"paths": [f"{tmp_path}/dev/zero*"]}))
    daemon.start()
    cluster.wait_numbers(resource, 1, 1)
    began = time.time()
    plug(tmp_path / "dev/zero1")
    measure("a node appears → the kubelet has it", cluster.wait_offered(resource, 2) - began)
    cluster.wait_numbers(resource, 2, 2)
    began = time.time()
    (tmp_path / "dev/zero1").unlink()
    measure("a node vanishes → the kubelet has it", cluster.wait_offered(resource, 1) - began)
    cluster.wait_numbers(resource, 1, 2)
    cluster.wait_numbers(resource, 1, 1, patience_s=KEPT_S)
    assert len(daemon.facts("streaming", resource=resource)) == 1


def test_a_device_that_is_unplugged_in_use_is_unhealthy_and_the_same_one_when_it_is_back(
    cluster: Cluster, fairlead: Make, resource: str, tmp_path: Path
):
    link = tmp_path / "by-id/usb-Scope_1"
    plug(tmp_path / "dev/zero0")
    link.parent.mkdir()
    link.symlink_to("../dev/zero0")
    fairlead(config(resource, {"paths": [f"{link.parent}/*"]})).start()
    cluster.wait_numbers(resource, 1, 1)
    script = f"{read(link)}; echo -- end; while {read(link)}; do sleep 1; done"
    pod = cluster.run_pod("holds", {resource: 1}, script=script)
    instance, held = pod.container()["containerID"], cluster.ids(pod)
    assert (held, pod.prints()[0]) == (("usb-Scope_1",), " 00 00")
    (tmp_path / "dev/zero0").unlink()
    link.unlink()
    cluster.wait_numbers(resource, 0, 1)
    plug(tmp_path / "dev/zero7")  # another name, the same link
    link.symlink_to("../dev/zero7")
    cluster.wait_numbers(resource, 1, 1)
    assert (cluster.offered(resource), cluster.ids(pod)) == (["usb-Scope_1"], held)
    assert (pod.is_ready(), pod.container()["containerID"]) == (True, instance)
    cluster.remove_pods()
    again = cluster.run_pod("again", {resource: 1}, script=f"{read(link)}; echo -- end; exec sleep 1000000")
    assert again.prints()[0] == " 00 00"


def test_a_usb_device_is_found_by_its_numbers_and_is_the_same_one_after_a_replug(
    cluster: Cluster, fairlead: Make, resource: str, bus: Bus
):
    first = bus.plug(1, "S1")
    made = config(resource, {"usb": {"vendor": VENDOR, "product": PRODUCT, "serial": "S1"}})
    made["backends"][0]["hostRoot"] = str(bus.root)
    fairlead(made).start()
    cluster.wait_numbers(resource, 1, 1)
    script = f"{read(bus.nodes)}; ls {bus.nodes}; echo -- end; exec sleep 1000000"
    pod = cluster.run_pod("scope", {resource: 1}, script=script)
    held = cluster.ids(pod)
    assert pod.prints()[:2] == [" 00 00", first]

    bus.unplug(1)
    cluster.wait_numbers(resource, 0, 1)
    second = bus.plug(2, "S1")
    cluster.wait_numbers(resource, 1, 1)
    assert (tuple(cluster.offered(resource)), cluster.ids(pod)) == (held, held)
    cluster.remove_pods()
    again = cluster.run_pod("again", {resource: 1}, script=script)
    assert again.prints()[:2] == [" 00 00", second]


@pytest.mark.parametrize("preset", ["fuse", "kvm", "tun"])
def test_a_preset_opens_in_the_container(cluster: Cluster, fairlead: Make, resource: str, preset: str):
    path = Path("/dev/net/tun" if preset == "tun" else f"/dev/{preset}")
    if not path.is_char_device():
        pytest.skip(f"this machine has no {path}")
    fairlead(config(resource, {"preset": preset}, replicas=3)).start()
    cluster.wait_numbers(resource, 3, 3)
    pod = cluster.run_pod(
        preset, {resource: 1}, script=f"exec 3<>{path} && echo it opens; echo -- end; exec sleep 1000000"
    )
    assert "it opens" in pod.prints()
    assert cluster.ids(pod)[0].partition("::")[0] == path.name


def test_a_console_is_found_by_its_class_and_is_a_terminal_inside(cluster: Cluster, fairlead: Make, resource: str):
    if not Path("/sys/class/tty/tty60").exists():
        pytest.skip("this machine has no virtual consoles")
    fairlead(config(resource, {"sysfs": {"class": "tty", "node": "tty6[01]"}})).start()
    cluster.wait_numbers(resource, 2, 2)
    pod = cluster.run_pod("console", {resource: 1}, script="ls /dev | grep '^tty6'; echo -- end; exec sleep 1000000")
    assert [line for line in pod.prints() if line.startswith("tty6")] == list(cluster.ids(pod))


@pytest.fixture
def terminal() -> Iterator[tuple[int, str]]:
    """Both ends of a pair of terminals: ours, and the path of the container's."""
    ours, theirs = os.openpty()
    try:
        yield ours, os.ttyname(theirs)
    finally:
        os.close(ours)
        os.close(theirs)


def test_a_pair_of_terminals_carries_what_the_container_writes(
    cluster: Cluster, fairlead: Make, resource: str, tmp_path: Path, terminal: tuple[int, str]
):
    """A node of devpts can only be mounted: made anew elsewhere, it does not open."""
    ours, path = terminal
    plug(tmp_path / "dev/zero0")
    mount = {"host": path, "container": "/dev/ttyLoop", "readOnly": False}
    fairlead(config(resource, {"paths": [f"{tmp_path}/dev/zero*"], "mounts": [mount]})).start()
    cluster.wait_numbers(resource, 1, 1)
    script = "[ -c /dev/ttyLoop ] && echo from the container > /dev/ttyLoop; echo -- end; exec sleep 1000000"
    cluster.run_pod("talks", {resource: 1}, script=script).prints()
    os.set_blocking(ours, False)
    assert until(lambda: _read(ours), "the terminal says something") == b"from the container\r\n"


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, 100)
    except BlockingIOError:
        return b""

"""`fairlead generic` and `fairlead smarter` on a true node: nodes open, devices come and go, pods are kept."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.node.cluster import Cluster
from tests.node.daemon import Fairlead
from tests.node.rig.steps import until
from tests.node.usbbus import PRODUCT, VENDOR, Bus

Make = Callable[[dict[str, Any]], Fairlead]
DOMAIN = "generic.example.com"


def make_node(path: Path) -> None:
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))  # reads zeros: a device that can be tried anywhere


def start(daemon: Fairlead, *words: str) -> None:
    daemon.run("-m", "fairlead", *words, f"--status-socket={daemon.socket}")


def opened(path: str) -> str:
    look = f"for node in {path}; do echo $node gives $(head -c 3 $node | od -An -tx1); done"
    return f"{look}; echo -- end; exec sleep 1000000"


def gives(prints: list[str]) -> list[str]:
    return [line for line in prints if " gives" in line]


def test_groups_of_squats_config_file_open_in_containers_and_a_change_over_keeps_pods(
    cluster: Cluster, fairlead: Make, tmp_path: Path
):
    for name in ("fuse", "tty0", "tty1"):
        make_node(tmp_path / name)
    fuse, serial = (f"{name}-{secrets.token_hex(3)}" for name in ("fuse", "serial"))
    path = {"path": f"{tmp_path}/tty*", "mountPath": "/dev/serial/", "permissions": "rw"}
    devices = [
        {"name": fuse, "groups": [{"count": 10, "paths": [{"path": f"{tmp_path}/fuse"}]}]},
        {"name": serial, "groups": [{"paths": [path]}]},
    ]
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump({"domain": DOMAIN, "listen": "127.0.0.1:0", "devices": devices}))
    command = ("generic", "--config", str(config))
    first = fairlead({})
    start(first, *command)
    cluster.wait_numbers(f"{DOMAIN}/{fuse}", 10, 10)
    cluster.wait_numbers(f"{DOMAIN}/{serial}", 2, 2)

    asks = {f"{DOMAIN}/{fuse}": 1, f"{DOMAIN}/{serial}": 1}
    pod = cluster.run_pod("opens", asks, script=opened(f"{tmp_path}/fuse /dev/serial/*"))
    held = {one.resource: one.ids for one in cluster.held(pod)}
    container = pod.container()["containerID"]
    lines = gives(pod.prints())
    assert len(lines) == 2
    assert all(line.endswith("gives 00 00 00") for line in lines)

    make_node(tmp_path / "tty2")  # plugged in
    cluster.wait_numbers(f"{DOMAIN}/{serial}", 3, 3)
    (tmp_path / "tty2").unlink()
    cluster.wait_numbers(f"{DOMAIN}/{serial}", 2, 3)  # unhealthy while a kubelet may have chosen it
    streams = [fact for fact in first.facts("said") if f"streaming resource={DOMAIN}/{serial} " in fact["text"]]
    assert len(streams) == 1  # nothing registered again

    second = fairlead({})  # another instance of ours, as after a change of the image
    first.end()
    start(second, *command)
    cluster.wait_offered(f"{DOMAIN}/{serial}", 2)
    cluster.wait_offered(f"{DOMAIN}/{fuse}", 10)
    assert {one.resource: one.ids for one in cluster.held(pod)} == held
    assert pod.phase == "Running"
    assert pod.container()["containerID"] == container
    other = cluster.run_pod("beside", asks, script=opened("/dev/serial/*"))
    assert set(cluster.ids(other)).isdisjoint(one for ids in held.values() for one in ids)
    assert gives(other.prints())[0].split()[0] != next(line for line in lines if "serial" in line).split()[0]


def test_a_usb_device_of_squats_config_opens_in_a_container_and_is_unhealthy_when_it_is_unplugged(
    cluster: Cluster, fairlead: Make, bus: Bus
):
    node = bus.plug(1, "S1")
    name = f"scope-{secrets.token_hex(3)}"
    device = {"name": name, "groups": [{"usb": [{"vendor": VENDOR, "product": PRODUCT, "serial": "S1"}]}]}
    more = ("--domain", DOMAIN, "--listen", "127.0.0.1:0", f"--host-root={bus.root}")
    start(fairlead({}), "generic", "--device", yaml.safe_dump(device), *more)
    cluster.wait_numbers(f"{DOMAIN}/{name}", 1, 1)
    pod = cluster.run_pod("scope", {f"{DOMAIN}/{name}": 1}, script=opened(bus.nodes))
    assert gives(pod.prints()) == [f"{node} gives 00 00 00"]
    bus.unplug(1)
    cluster.wait_numbers(f"{DOMAIN}/{name}", 0, 1)
    assert pod.is_ready()


@pytest.fixture
def token() -> Iterator[str]:
    """What names of nodes in /dev begin with; they are removed at the end."""
    token = f"flt{secrets.token_hex(3)}x"
    yield token
    for node in Path("/dev").glob(f"{token}*"):
        node.unlink()


def test_each_file_that_smarters_config_matches_is_a_resource_also_one_that_comes_later(
    cluster: Cluster, fairlead: Make, token: str, tmp_path: Path
):
    make_node(Path("/dev") / f"{token}0")
    config = tmp_path / "conf.yaml"
    config.write_text(yaml.safe_dump([{"devicematch": f"^{token}[0-9]+$", "nummaxdevices": 2}]))
    daemon = fairlead({})
    start(daemon, "smarter", "--config", str(config))
    first, later = (f"smarter-devices/{token}{number}" for number in (0, 1))
    cluster.wait_numbers(first, 2, 2)
    pod = cluster.run_pod("smart", {first: 1}, script=opened(f"/dev/{token}*"))
    assert cluster.ids(pod)[0] in {"0", "1"}
    assert gives(pod.prints()) == [f"/dev/{token}0 gives 00 00 00"]

    make_node(Path("/dev") / f"{token}1")
    cluster.wait_numbers(later, 2, 2)
    beside = cluster.run_pod("later", {later: 2}, script=opened(f"/dev/{token}*"))
    assert gives(beside.prints()) == [f"/dev/{token}1 gives 00 00 00"]
    until(lambda: cluster.numbers(first) == (2, 2), "the first resource stays")

    held = cluster.held(pod)
    (Path("/dev") / f"{token}1").unlink()  # while a pod has it
    cluster.wait_offered(later, 0)
    second = fairlead({})  # another instance of ours
    daemon.end()
    start(second, "smarter", "--config", str(config))
    cluster.wait_offered(first, 2)
    assert cluster.held(pod) == held
    assert pod.is_ready()

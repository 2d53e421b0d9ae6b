"""A second kube-scheduler of the node, with our extender, as the guide sets them up; each is killed alone."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from fairlead.cluster.rbac import FEATURES
from fairlead.model.names import DeviceId
from fairlead.policy.offering.memory import read_id, short_name
from fairlead.policy.packing.told import key_of, read_told
from tests.cluster.plane import Process, free_ports
from tests.docs.blocks import ROOT, read_blocks
from tests.node.account import Account
from tests.node.assigner import Dialect
from tests.node.cluster import Cluster
from tests.node.load import Cards, Key, Load
from tests.node.rig import house, process
from tests.node.rig.places import BIN, CONFIG, HOST, NODE
from tests.node.rig.steps import until

NAME = "sharing"  # of the scheduler, as pods name it
CALL_S = 5.0
GIB = 1024
LISTS = 3  # of what pods hold: what is wrong in all of them is wrong
Booked = dict[str, dict[str, int]]  # by card: what each pod has of it


class Scheduling:
    """In the node's namespace, so that nothing of it outlives the node."""

    def __init__(self, root: Path, resources: list[dict[str, str]]) -> None:
        features = [rules for feature, rules in FEATURES.items() if feature.startswith("`fairlead scheduler`")]
        self._account = Account(root, [rule for rules in features for rule in rules])
        (port,) = free_ports(1)
        self._url = f"http://{HOST}:{port}"
        config = root / "extender.json"
        config.write_text(json.dumps({"listen": [f"{HOST}:{port}"], "resources": resources}))
        fairlead = (sys.executable, "-m", "fairlead", "scheduler")
        words = [*fairlead, "config", "--config", str(config), "--url", self._url, "--name", NAME]
        printed = subprocess.run(words, check=True, capture_output=True, text=True).stdout
        file = root / "scheduler.yaml"
        file.write_text(f"{printed}clientConnection: {{kubeconfig: {CONFIG}/scheduler.kubeconfig}}\n")
        binary = (BIN / "kube-scheduler").resolve()
        flags = (f"--config={file}", "--leader-elect=false", "--secure-port=0")
        known = {"KUBECONFIG": str(self._account.file)}
        self.extender = Process(house.inside(*fairlead, "--config", config), root / "extender.log", known)
        self.scheduler = Process(house.inside(binary, *flags), root / "kube-scheduler.log")

    def start(self) -> None:
        self.extender.start()
        until(self.is_ready, "the extender is ready")
        self.scheduler.start()

    def end(self) -> None:
        self.scheduler.end()
        self.extender.end()
        self._account.remove()

    def is_ready(self) -> bool:
        try:
            return bool(self._ask("/readyz"))
        except OSError:
            return False

    def booked(self, resource: str) -> Booked:
        """What the extender says that pods have."""
        (found,) = [one for one in self._ask(f"/scheduler/inspect/{NODE}")["nodes"] if one["resource"] == resource]
        cards = {str(device["id"]): device["pods"] for device in found["devs"] if device["pods"]}
        return {card: {pod["name"]: pod["usedGPU"] for pod in pods} for card, pods in cards.items()}

    def _ask(self, path: str) -> Any:
        with urllib.request.urlopen(self._url + path, timeout=CALL_S) as answer:
            text = answer.read()
        return json.loads(text) if text.startswith(b"{") else text


@contextmanager
def killed(name: str) -> Iterator[None]:
    """Around the kill of a program of the node: until its last thread is over.

    A process whose first thread has ended is a zombie, while others of its threads still hold its ports. On a busy
    machine that takes long enough for the next one to find them taken.
    """
    pid = process.running(name)
    yield
    until(lambda: pid is None or not _other_threads(pid), f"{name} is over")


def _other_threads(pid: int) -> set[str]:
    try:
        return {one.name for one in Path(f"/proc/{pid}/task").iterdir()} - {str(pid)}
    except FileNotFoundError:
        return set()


class SteadyLoad(Load):
    """The kubelet reads its list pod by pod: an id that changes hands meanwhile is in it twice, but not in the next."""

    def _check(self, held: Mapping[Key, frozenset[str]], alive: Mapping[Key, tuple[str, int]]) -> None:
        for _ in range(LISTS):
            if sum(map(len, held.values())) == len(frozenset[str]().union(*held.values())):
                break
            held = self._cluster.holdings(self._resource)
        super()._check(held, alive)


def kill(part: Process) -> None:
    part.end(signal.SIGKILL)
    part.start()


def native_dialect(resource: str) -> Dialect:
    ours = "scheduler.fairlead/"
    names = (f"{ours}device", f"{ours}time", f"{ours}assigned", "GPU_INDEX", "GPU_MEMORY_MIB")
    return Dialect("native", (), resource, *names, told_mib=1)


def native_config(resource: str, cards_gib: tuple[int, ...], account: Account) -> dict[str, Any]:
    """The rule of the guide, for this resource."""
    page = ROOT / "docs" / "guide" / "scheduler.md"
    (block,) = [block for block in read_blocks(page) if block.word == "fairlead.yaml"]
    config: dict[str, Any] = yaml.safe_load(block.text)
    config["rules"][0]["resource"] = resource
    config["cluster"] |= {"node": NODE, "kubeconfig": str(account.file)}
    groups = [{"count": 1, "vendor": "sim", "memory": f"{gib}GiB", "id": "GPU-{uuid}"} for gib in cards_gib]
    config["backends"] = [{"kind": "sim", "fleet": {"name": "native", "devices": groups}}]
    return config


def native_cards(cluster: Cluster, resource: str) -> Cards:
    """As the node tells of them, by index. The id of a unit holds the first digits of its card's."""
    told = until(
        lambda: read_told(cluster.annotations().get(key_of(resource), "")) or (), "the node tells of its devices"
    )
    indexes = {short_name(DeviceId(one.id)): one.index for one in told}

    def card_of(slot: str) -> str:
        part = read_id(slot)
        assert part is not None, f"{slot} is no id of memory"
        return indexes[part.short]

    def tells(env: Mapping[str, str]) -> tuple[str, int] | None:
        return (env["GPU_INDEX"], int(env["GPU_MEMORY_MIB"])) if "GPU_INDEX" in env else None

    units = {one.index: one.units for one in told}
    return Cards(units, {card: own * GIB for card, own in units.items()}, GIB, card_of, tells)

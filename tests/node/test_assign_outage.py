"""A scheduler above chose the GPU, and the API server is away, stopped or silent for a while: pods are admitted after.

On a true node, with gpushare's dialect as its guide installs it.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from fairlead.observe.control import ask
from tests.node.account import Account
from tests.node.assign_runs import MIB, TOTAL, UNITS, Command, Run, Shape, rules
from tests.node.assigner import DIALECTS
from tests.node.cluster import Cluster
from tests.node.conftest import Measure
from tests.node.relay import Relay
from tests.node.rig import process
from tests.node.rig.node import start_apiserver, stop_apiserver
from tests.node.rig.places import NODE, ports
from tests.node.rig.steps import until
from tests.nvml import Driver, gpus
from tests.nvml.library import compiled_or_skip

(GPUSHARE,) = [dialect for dialect in DIALECTS if dialect.name == "gpushare"]
PODS: list[Shape] = [((size,), 0) for size in (2, 2, 3, 2, 3, 2)]  # equal ones among them
OUTAGE_S = 70.0
APISERVER = "kube-apiserver"
AWAY = f"the pods of node '{NODE}' are not known"


class Stage:
    def __init__(self, cluster: Cluster, root: Path) -> None:
        account = Account(root, rules(GPUSHARE.name))
        self.account = account
        self.relay = Relay(ports().api)
        text = account.file.read_text()
        account.file.write_text(text.replace(f":{ports().api}", f":{self.relay.port}"))
        sizes = [units * GPUSHARE.unit_mib * MIB for units in UNITS]
        self.gpus = tuple(replace(g, memory_total=s) for g, s in zip(gpus("T4", len(UNITS)), sizes, strict=True))
        self._cluster, self._root = cluster, root

    @contextmanager
    def running(self) -> Iterator[Run]:
        with Driver(gpus=self.gpus).installed(self._root / "driver") as machine:
            env = {**machine.env, "NODE_NAME": NODE, "KUBECONFIG": str(self.account.file)}
            command = Command(self._root, (GPUSHARE.name, *GPUSHARE.args), env)
            try:
                command.start()
                self._cluster.wait_offered(GPUSHARE.resource, TOTAL)
                self._cluster.wait_numbers(GPUSHARE.resource, TOTAL, TOTAL)
                yield Run(self._cluster, GPUSHARE, self.gpus, command)
            finally:
                self._cluster.remove_pods()
                command.end()
                self.relay.close()
                self.account.remove()


@pytest.fixture
def run(cluster: Cluster, tmp_path: Path) -> Iterator[tuple[Stage, Run]]:
    compiled_or_skip()
    stage = Stage(cluster, tmp_path)
    with stage.running() as run:
        yield stage, run


def wait_problem(command: Command, text: str) -> None:
    until(lambda: any(text in line for line in command.said("problem")), f"a problem with {text!r}", look_s=0.05)


def admit_all(run: Run, measure: Measure, what: str) -> None:
    began = time.monotonic()
    left, refused = run.burst(PODS, trouble=False)
    measure(f"{len(PODS)} pods assigned {what}", time.monotonic() - began)
    assert left == []
    assert refused == []


def test_pods_are_admitted_while_a_proxy_holds_the_watch_back(run: tuple[Stage, Run], measure: Measure):
    stage, one = run
    admit_all(one, measure, "without trouble")
    assert stage.relay.mute() > 0
    admit_all(one, measure, "behind a silent watch")
    wait_problem(one.command, "the watch of pods tells nothing")


def test_pods_are_admitted_as_soon_as_a_stopped_server_goes_on(run: tuple[Stage, Run], measure: Measure):
    _, one = run
    pid = process.running(APISERVER)
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    try:
        until(lambda: AWAY in str(ask(one.command.socket, {"ask": "status"})["problems"]), "the status says it")
        measure("from the server's stop to a status that says it", time.monotonic() - began)
        until(lambda: time.monotonic() - began > OUTAGE_S / 2, "the outage is over", OUTAGE_S)
    finally:
        os.kill(pid, signal.SIGCONT)
    admit_all(one, measure, "after a stop of the server")


def test_pods_are_admitted_as_soon_as_a_killed_server_is_back(run: tuple[Stage, Run], measure: Measure):
    _, one = run
    stop_apiserver()
    began = time.monotonic()
    try:
        wait_problem(one.command, AWAY)
        measure("from the server's end to the problem", time.monotonic() - began)
        until(lambda: time.monotonic() - began > OUTAGE_S, "the outage is over", 2 * OUTAGE_S)
    finally:
        start_apiserver()
    admit_all(one, measure, "after an outage of the server")

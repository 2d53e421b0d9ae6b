"""The node of the session, and for each test a cluster view, daemons and a resource name of its own."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.node import charted, runtime, verdict
from tests.node.cluster import Cluster
from tests.node.daemon import Fairlead
from tests.node.rig import needs, process
from tests.node.rig import node as rig
from tests.node.rig.api import Api
from tests.node.rig.images import load
from tests.node.rig.node import start_kubelet
from tests.node.rig.places import LOGS
from tests.node.rig.steps import NodeMissingError
from tests.node.usbbus import Bus

Measure = Callable[[str, float], None]
LIMIT_S = 1800 if os.environ.get("NODE_TEST_FULL") else 300
# Bursts of pods, by which a kubelet is judged: they keep the machine busy by themselves.
ALONE = {"assign", "daemonset", "memory", "scheduler"}
_measured: dict[str, list[float]] = {}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/node/" in item.path.as_posix():
            item.add_marker(pytest.mark.node)
            if item.path.stem.removeprefix("test_") in ALONE:
                item.add_marker(pytest.mark.alone)
            # For the test alone: the first one also waits until the node is built and up.
            item.add_marker(pytest.mark.timeout(LIMIT_S, func_only=True))


@pytest.fixture(scope="session")
def node(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A node that is up already is used and left alone; else it is brought up here and taken down."""
    aloud = request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled
    with ExitStack() as stack:
        try:
            needs.check()
            stack.enter_context(process.alone())
            found = rig.is_up()
            if not found:
                with aloud():  # minutes the first time: the progress must be seen
                    print(file=sys.stderr)
                    rig.up()
        except NodeMissingError as missing:
            if os.environ.get("CI") == "true":
                pytest.fail(f"CI must be able to run a node: {missing}", pytrace=False)
            pytest.skip(str(missing))
        log = LOGS / "kubelet.log"
        start = log.stat().st_size
        complaints: list[str] = []
        try:
            yield
            complaints = verdict.complaints(verdict.read(log, start))
        finally:
            if not found:
                with aloud():
                    print(file=sys.stderr)
                    if request.session.testsfailed or complaints:
                        kept = shutil.copytree(LOGS, tmp_path_factory.getbasetemp() / "node-logs")
                        print(f"· the node's logs are kept in {kept}", file=sys.stderr)
                    rig.down()
        assert not complaints, "the kubelet holds this against us:\n" + "".join(complaints)


@pytest.fixture
def cluster(node: None) -> Iterator[Cluster]:
    if not rig.is_up():  # a test before this one may have failed while the kubelet was down
        start_kubelet()
    cluster = Cluster()
    try:
        yield cluster
    finally:
        if not rig.is_up():
            start_kubelet()
        cluster.remove_pods()


@pytest.fixture(scope="session")
def image(node: None, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The image that users deploy, known to the node by this name. Built once for all workers."""
    base = tmp_path_factory.getbasetemp()
    load(runtime.make((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "fairlead-image"))
    return runtime.NAME


@pytest.fixture
def space(cluster: Cluster) -> Iterator[Api]:
    """A namespace for releases of the chart."""
    with charted.namespace(cluster) as api:
        yield api


@pytest.fixture
def resource(request: pytest.FixtureRequest) -> str:
    """A resource of its own for each test: the kubelet remembers the old ones for five minutes."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())
    return f"example.com/{words[:24].strip('-')}-{secrets.token_hex(3)}"


@pytest.fixture
def fairlead(tmp_path: Path, cluster: Cluster) -> Iterator[Callable[[dict[str, Any]], Fairlead]]:
    """Makes daemons, and ends them with the test."""
    made: list[Fairlead] = []

    def make(config: dict[str, Any]) -> Fairlead:
        root = tmp_path / f"daemon{len(made)}"
        root.mkdir()
        made.append(Fairlead(root, config))
        return made[-1]

    yield make
    for daemon in made:
        daemon.end()


@pytest.fixture
def measure() -> Measure:
    """Notes a time. It is printed at the end and never judged: a busy machine is not a fault."""

    def note(what: str, seconds: float) -> None:
        _measured.setdefault(what, []).append(seconds)

    return note


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker hands over what it measured: only the controller prints."""
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output["measured"] = _measured


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    for what, times in getattr(node, "workeroutput", {}).get("measured", {}).items():
        _measured.setdefault(what, []).extend(times)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _measured:
        terminalreporter.section("times on the node (the kubelet reports to the API server once a second)")
        for what, times in _measured.items():
            spread = f"{min(times):8.3f} {statistics.median(times):8.3f} {max(times):8.3f}"
            terminalreporter.write_line(f"{what:58} {spread} s  of {len(times)}")
        terminalreporter.write_line(f"{'':58} {'least':>8} {'median':>8} {'most':>8}")


@pytest.fixture
def bus(tmp_path: Path) -> Iterator[Bus]:
    made = Bus(tmp_path / "host")
    yield made
    made.remove()

"""What a daemon on the node answers over HTTP: its probes by check, and its metrics by name."""

from __future__ import annotations

import http.client
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

from tests.node.daemon import Fairlead
from tests.node.rig.places import HOST
from tests.node.rig.steps import NodeFailedError, until

PROBES = ("/healthz", "/readyz", "/startupz")
HTTP = {"http": {"listen": f"{HOST}:0"}}  # a part of a configuration; any free port
ANSWER_S = 2.0
Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Probe:
    status: int = 200
    failed: Labels = field(default_factory=dict)  # what is wrong, by the name of the check


WELL = Probe()


class Page:
    """One page of metrics."""

    def __init__(self, text: str) -> None:
        families = text_string_to_metric_families(text)
        self.samples = [(each.name, each.labels, each.value) for family in families for each in family.samples]

    def all(self, name: str) -> list[tuple[Labels, float]]:
        return [(labels, value) for found, labels, value in self.samples if found == name]

    def value(self, name: str, **labels: str) -> float | None:
        """Of the one series that has these labels. None: there is none."""
        found = [value for has, value in self.all(name) if labels.items() <= has.items()]
        assert len(found) < 2, f"{name} {labels} is not one series: {found}"
        return found[0] if found else None


class Web:
    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port

    def probe(self, path: str) -> Probe:
        """OSError: no answer in time."""
        status, text = self._get(path)
        assert status in {200, 503}, text
        failed: dict[str, str] = {}
        for line in text.splitlines():
            name, _, reason = line[3:].partition(" failed: ")
            if line.startswith("[-]"):
                failed[name] = reason
            else:
                assert line.startswith("[+]"), text
                assert line.endswith(" ok"), text
        return Probe(status, failed)

    def all_well(self) -> bool:
        try:
            return all(self.probe(path) == WELL for path in PROBES)
        except ConnectionRefusedError:
            return False  # it does not listen yet

    def wait_all_well(self) -> None:
        until(self.all_well, "every probe succeeds", 60.0)

    def wait_failing(self, path: str, check: str) -> str:
        """Until this check fails and no other does; why it fails."""

        def reason() -> str:
            try:
                found = self.probe(path)
            except ConnectionRefusedError:
                return ""  # it does not listen yet: a daemon that follows a label of its node waits for that first
            assert found.status == (503 if found.failed else 200)
            return found.failed[check] if set(found.failed) == {check} else ""

        return until(reason, f"{path} fails for {check}", 60.0, 0.02)

    def is_silent(self, path: str) -> bool:
        """Whether nobody answers: a connection is taken by the kernel, and nothing comes back."""
        try:
            self.probe(path)
        except OSError:
            return True
        return False

    def metrics(self) -> Page:
        status, text = self._get("/metrics")
        assert status == 200, text
        return Page(text)

    def wait_metric(self, expected: float, name: str, **labels: str) -> None:
        last: list[float | None] = []

        def look() -> bool:
            last[:] = [self.metrics().value(name, **labels)]
            return last == [expected]

        try:
            until(look, f"{name} {labels} is {expected}", 60.0, 0.2)
        except NodeFailedError as error:
            raise NodeFailedError(f"{error}; it is {last}") from None

    def _get(self, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=ANSWER_S)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()


def web_of(daemon: Fairlead) -> Web:
    """Of the daemon as it runs now: each start has a port of its own."""
    daemon.wait_fact("http", after=daemon.began)
    return Web(HOST, daemon.facts("http")[-1]["port"])


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    """Stopped meanwhile, with all its threads and its sockets."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)

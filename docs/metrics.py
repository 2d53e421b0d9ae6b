"""The names that `/metrics` serves, as the daemon and the scheduler extender themselves give them."""

from __future__ import annotations

from collections.abc import Iterator

from fairlead.cluster.access import Access, parse_server
from fairlead.cluster.client import Client
from fairlead.config.schedulerspec import SchedulerSpec
from fairlead.kit.clock import SystemClock
from fairlead.model.holdings import Holdings
from fairlead.model.inventory import ALL_HEALTHY, EMPTY
from fairlead.observe.journal import Fact
from fairlead.observe.metrics import render
from fairlead.observe.process import Process
from fairlead.observe.status import Snapshot
from fairlead.observe.totals import Own, Totals
from fairlead.policy.offering.rules import Offering
from fairlead.programs.extender.metrics import Metrics
from fairlead.scheduler.extender import Extender, ExtenderTerms
from fairlead.scheduler.view import View

_IDLE = Snapshot(
    pid=1,
    instance="",
    started_s=0.0,
    now_s=0.0,
    monotonic_s=0.0,
    config="",
    directory="",
    holdings=Holdings(),
    holders_problem="",
    backends=(),
    inventory=EMPTY,
    conditions=ALL_HEALTHY,
    offering=Offering((), (), ()),
    endpoints=(),
    elsewhere={},
    problems=(),
)
_PROCESS = Process(resident_bytes=0, cpu_seconds=0.0, open_files=0)
_OWN = Own(registrations={}, config_hash="", config_problem="", process=_PROCESS)


def rows() -> Iterator[tuple[str, str, str]]:
    """Name, type and help of each that a daemon serves."""
    totals = Totals(lambda: 0.0)
    totals.note(Fact(0, 0.0, "streaming", {}))
    return _rows(render(_IDLE, totals, _OWN))


def scheduler_rows() -> Iterator[tuple[str, str, str]]:
    """The same for the scheduler extender."""
    clock = SystemClock()
    client = Client(Access(parse_server("http://localhost")), clock)
    extender = Extender(client, View(SchedulerSpec().terms()), ExtenderTerms(), lambda *_args, **_keys: None)
    return _rows(Metrics(extender, clock).render(_PROCESS))


def _rows(page: bytes) -> Iterator[tuple[str, str, str]]:
    lines = [line.split(" ", 3)[1:] for line in page.decode().splitlines() if line[:2] == "# "]
    kinds = {name: text for what, name, text in lines if what == "TYPE"}
    yield from sorted((f"`{name}`", kinds[name], text) for what, name, text in lines if what == "HELP")

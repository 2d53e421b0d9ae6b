"""What the scheduler extender tells Prometheus, read back by Prometheus' own parser."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.apiserver.server import ApiServer, Fault, api_server
from tests.unit.observe.exposed import Samples, value
from tests.unit.scheduler.rig import MEMORY, Rig, node, placed, pod, running

from fairlead.kit.clock import SystemClock
from fairlead.observe.process import read_process
from fairlead.programs.extender.metrics import Metrics
from fairlead.scheduler.http.messages import Request
from fairlead.scheduler.routes import routes


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with api_server() as server:
        yield server


class Asked:
    """The routes of an extender with its metrics, asked without a socket."""

    def __init__(self, rig: Rig) -> None:
        self.metrics = Metrics(rig.extender, SystemClock())
        self._table = self.metrics.instrument(routes(rig.extender))

    async def __call__(self, path: str, body: Any) -> Any:
        request = Request("POST", path, "", {}, body if isinstance(body, bytes) else msgspec.json.encode(body))
        return msgspec.json.decode((await self._table[path]["POST"](request)).body)

    def read(self) -> Samples:
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(self.metrics.render(read_process()).decode())
            for sample in family.samples
        }


def to(name: str, on: str) -> dict[str, str]:
    return {"PodName": name, "PodNamespace": "default", "PodUID": f"uid-{name}", "Node": on}


async def test_every_family_has_help_a_type_and_a_name_by_the_rules(server: ApiServer):
    async with running(server, node("n1")) as rig:
        families = list(text_string_to_metric_families(Asked(rig).metrics.render(read_process()).decode()))
    assert len({family.name for family in families}) == len(families)
    for family in families:
        assert family.documentation
        assert family.type in {"gauge", "counter", "histogram"}
        assert family.name.startswith(("fairlead_scheduler_", "process_"))


async def test_answers_are_counted_by_verb_and_result_and_timed(server: ApiServer):
    small, large = pod("p", 10), pod("q", 99)
    async with running(server, node("n1"), small, large) as rig:
        ask = Asked(rig)
        assert value(ask.read(), "fairlead_scheduler_answers_total", verb="filter", result="fits") == 0
        await ask("/scheduler/filter", {"Pod": small, "NodeNames": ["n1"]})
        await ask("/gpushare-scheduler/filter", {"Pod": small, "NodeNames": ["n1"]})
        await ask("/scheduler/filter", {"Pod": large, "NodeNames": ["n1"]})
        await ask("/scheduler/filter", b"{")
        await ask("/scheduler/prioritize", {"Pod": small, "NodeNames": ["n1"]})
        await ask("/scheduler/preempt", b"[]")
        await ask("/scheduler/bind", to("p", "n1"))
        await ask("/scheduler/bind", to("gone", "n1"))
        found = ask.read()
    for verb, result, count in (
        ("filter", "fits", 2),
        ("filter", "refused", 1),
        ("filter", "error", 1),
        ("prioritize", "done", 1),
        ("preempt", "error", 1),
        ("bind", "done", 1),
        ("bind", "error", 1),
    ):
        assert value(found, "fairlead_scheduler_answers_total", verb=verb, result=result) == count, (verb, result)
    assert value(found, "fairlead_scheduler_call_duration_seconds_count", verb="filter") == 4
    assert value(found, "fairlead_scheduler_call_duration_seconds_sum", verb="bind") > 0
    assert value(found, "fairlead_scheduler_pods", state="refused") == 1


async def test_a_booking_becomes_more_certain_from_filter_to_bind(server: ApiServer):
    asking = pod("p", 10)
    async with running(server, node("n1"), placed("a", 6, "n1", 1), asking) as rig:
        ask = Asked(rig)

        def booked(origin: str) -> float:
            return value(ask.read(), "fairlead_scheduler_bookings", resource=MEMORY, origin=origin)

        assert (booked("tentative"), booked("seen")) == (0, 1)
        await ask("/scheduler/filter", {"Pod": asking, "NodeNames": ["n1"]})
        assert (booked("tentative"), booked("seen")) == (1, 1)
        assert value(ask.read(), "fairlead_scheduler_units_booked", resource=MEMORY) == 16
        await ask("/scheduler/bind", to("p", "n1"))
        assert value(ask.read(), "fairlead_scheduler_binds_total", result="bound") == 1
        await rig.until(lambda: booked("seen") == 2)
        assert (booked("tentative"), booked("bound")) == (0, 0)
        found = ask.read()
    assert value(found, "fairlead_scheduler_nodes", resource=MEMORY) == 1
    assert value(found, "fairlead_scheduler_units", resource=MEMORY) == 32
    assert value(found, "fairlead_scheduler_pods", state="bound") == 2


async def test_binds_that_another_client_was_first_with_are_conflicts(server: ApiServer):
    one, two = pod("p", 10), pod("q", 30)
    async with running(server, node("n1"), node("n2"), one, two) as rig:
        ask = Asked(rig)
        await ask("/scheduler/bind", to("q", "n1"))  # no device has 30
        rig.server.faults.append(Fault(409, "the object has been modified", methods="POST"))
        await ask("/scheduler/bind", to("p", "n1"))
        found = ask.read()
    assert value(found, "fairlead_scheduler_binds_total", result="no-room") == 1
    assert value(found, "fairlead_scheduler_binds_total", result="conflict") == 1


async def test_devices_that_two_schedulers_gave_away_are_overcommitted(server: ApiServer):
    async with running(server, node("n1"), placed("a", 10, "n1", 0), placed("b", 10, "n1", 0)) as rig:
        found = Asked(rig).read()
    assert value(found, "fairlead_scheduler_devices_overcommitted", resource=MEMORY) == 1


async def test_the_watches_tell_when_they_last_heard_something(server: ApiServer):
    async with running(server, node("n1")) as rig:
        ask = Asked(rig)
        before = ask.read()
        assert value(before, "fairlead_scheduler_ready") == 1
        for kind in ("nodes", "pods"):
            assert value(before, "fairlead_scheduler_lists_total", kind=kind) == 1
            assert value(before, "fairlead_scheduler_watch_failures_total", kind=kind) == 0
        heard = value(before, "fairlead_scheduler_watch_heard_timestamp_seconds", kind="pods")
        await rig.seen(pod("p", 1))
        assert value(ask.read(), "fairlead_scheduler_watch_heard_timestamp_seconds", kind="pods") > heard


async def test_a_page_serves_for_a_second(server: ApiServer):
    async with running(server, node("n1")) as rig:
        metrics = Metrics(rig.extender, SystemClock())
        first = await metrics.metrics(Request("GET", "/metrics", "", {}, b""))
        rig.extender.wakes = 7
        assert await metrics.metrics(Request("GET", "/metrics", "", {}, b"")) == first
        assert b"\nfairlead_scheduler_wakes_total 7\n" in metrics.render(read_process())

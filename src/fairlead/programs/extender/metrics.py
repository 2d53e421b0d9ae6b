"""What the extender tells Prometheus, in the text format 0.0.4.

Owns the names, their help and the bounds on series: a client can make none. A page serves for a second.
"""

from __future__ import annotations

from collections import Counter

from fairlead._version import __version__
from fairlead.model.ports import Clock
from fairlead.observe.exposition import TYPE, Exposition, Label
from fairlead.observe.process import Process, read_process, render_process
from fairlead.observe.totals import Totals
from fairlead.policy.packing.packing import Origin, Packing
from fairlead.scheduler.extender import BINDS, Extender
from fairlead.scheduler.http.limits import Counters
from fairlead.scheduler.http.messages import Reply, Request, Routes
from fairlead.scheduler.routes import VERBS, Table

FRESH_S = 1.0  # a page is not made more often: it looks at every device of the cluster
Samples = list[tuple[list[Label], float]]


class Metrics:
    def __init__(self, extender: Extender, clock: Clock) -> None:
        self.counters = Counters()  # those of the server
        self._extender = extender
        self._clock = clock
        self._totals = Totals(clock.monotonic)
        self._started_s = clock.now()
        self._made_s = float("-inf")
        self._page = b""

    @property
    def route(self) -> Table:
        return Table({"/metrics": {"GET": self.metrics}})

    def instrument(self, table: Routes) -> Table:
        """The same routes, with the time of each verb observed, and with the page of metrics."""
        made = Table(self.route)
        for path, methods in table.items():
            verb = path.rpartition("/")[2]
            timed = verb in VERBS
            made[path] = {name: self._totals.timed(verb, each) if timed else each for name, each in methods.items()}
        return made

    async def metrics(self, _request: Request) -> Reply:
        if self._clock.monotonic() - self._made_s >= FRESH_S:
            self._page = self.render(read_process())
            self._made_s = self._clock.monotonic()
        return Reply(self._page, type=TYPE)

    def render(self, process: Process) -> bytes:
        page = Exposition()
        page.gauge("fairlead_scheduler_build_info", "The version of the extender.", 1, ("version", __version__))
        _render_answers(page, self._extender, self._totals)
        _render_view(page, self._extender)
        _render_feed(page, self._extender)
        _render_server(page, self.counters)
        render_process(page, self._started_s, process)
        return page.encode()


def _render_answers(page: Exposition, extender: Extender, totals: Totals) -> None:
    page.family(
        "fairlead_scheduler_answers_total",
        "counter",
        "Answers to kube-scheduler, by verb and result. An error: it tries again later.",
        [
            ([("verb", verb), ("result", result)], extender.answers[verb, result])
            for verb, results in VERBS.items()
            for result in results
        ],
    )
    page.histogram("fairlead_scheduler_call_duration_seconds", "Time to answer a verb.", "verb", totals.calls)
    page.family(
        "fairlead_scheduler_binds_total",
        "counter",
        "Binds that were tried, by what became of them. Conflict: the API server had another write of the pod before. "
        "No-room: the devices were taken between filter and bind. Unknown: the answer was lost.",
        [([("result", result)], extender.binds[result]) for result in BINDS],
    )
    page.gauge(
        "fairlead_scheduler_binds_unsettled",
        "Binds of which it is not known yet whether the API server did them. Their devices stay booked.",
        extender.unsettled,
    )
    page.family(
        "fairlead_scheduler_wakes_total",
        "counter",
        "Pods that were refused before, and were told that they fit now.",
        [((), extender.wakes)],
    )


def _render_view(page: Exposition, extender: Extender) -> None:
    view = extender.view
    resources = [(one.contract.resource, packing) for one, packing in zip(view.terms, view.packings, strict=True)]
    looks = {resource: _look(packing) for resource, packing in resources}
    page.family(
        "fairlead_scheduler_nodes",
        "gauge",
        "Nodes that offer a resource.",
        [([("resource", resource)], len(packing.nodes)) for resource, packing in resources],
    )
    page.family(
        "fairlead_scheduler_bookings",
        "gauge",
        "Pods that have room on a device, by how certain it is. Tentative: the filter was answered. Nominated: "
        "preemption makes room. Bound: bound by this extender. Seen: the API server shows it.",
        [
            ([("resource", resource), ("origin", origin.name.lower())], looks[resource][origin.name])
            for resource, _ in resources
            for origin in Origin
        ],
    )
    for name, text in (
        ("units", "Units of all devices of a resource."),
        ("units_booked", "Units that pods have been given, or are promised."),
        ("devices_overcommitted", "Devices of which pods hold more than there is."),
    ):
        samples: Samples = [([("resource", resource)], looks[resource][name]) for resource, _ in resources]
        page.family(f"fairlead_scheduler_{name}", "gauge", text, samples)
    page.family(
        "fairlead_scheduler_pods",
        "gauge",
        "Pods that ask for a resource of this extender. Refused ones wait as well. Unclear: on a node, and it cannot "
        "be read which devices they have.",
        [([("state", state)], count) for state, count in view.counts.items()],
    )


def _look(packing: Packing) -> Counter[str]:
    """One look at every device and booking."""
    found: Counter[str] = Counter()
    for name, room in packing.nodes.items():
        found["units"] += sum(device.units for device in room.devices)
        found["units_booked"] += sum(room.used)
        found["devices_overcommitted"] += sum(free < 0 for free in room.free)
        found.update(booking.origin.name for booking in packing.on(name))
    return found


def _render_feed(page: Exposition, extender: Extender) -> None:
    feed = extender.feed
    page.gauge("fairlead_scheduler_ready", "Whether the lists of nodes and pods were read.", feed.ready)
    for name, kind, text, what in (
        ("lists_total", "counter", "Lists that were read. One after the first: a watch could not go on.", "lists"),
        ("watch_failures_total", "counter", "Times that the API server could not be asked.", "losses"),
        (
            "watch_heard_timestamp_seconds",
            "gauge",
            "When the API server last sent something on a watch. It sends a bookmark about every minute. 0: never.",
            "heard_s",
        ),
    ):
        samples: Samples = [([("kind", each)], getattr(half, what)) for each, half in feed.halves.items()]
        page.family(f"fairlead_scheduler_{name}", kind, text, samples)


def _render_server(page: Exposition, counters: Counters) -> None:
    page.family(
        "fairlead_scheduler_http_requests_total",
        "counter",
        "Requests by path and status. A path that is not served is empty.",
        [([("path", path), ("status", str(status))], count) for (path, status), count in counters.requests.items()],
    )
    page.gauge("fairlead_scheduler_connections", "Connections that are open.", counters.connections)
    page.gauge("fairlead_scheduler_body_bytes", "Room that bodies of requests have.", counters.bytes_in_flight)
    for name, text, count in (
        ("connections_refused", "Connections that were too many.", counters.refused),
        ("connections_evicted", "Idle connections that were closed to make room.", counters.evicted),
        ("clients_abandoned", "Connections that were ended because the client was too slow.", counters.abandoned),
        ("handshakes_failed", "TLS handshakes that failed.", counters.handshakes_failed),
    ):
        page.family(f"fairlead_scheduler_{name}_total", "counter", text, [((), count)])

"""`fairlead scheduler`: the extender as a program. It has no state of its own: it lists, then it serves.

Owns the order of its start and of its end. Listens at once, and says that it is not ready until both lists are read: a
scheduler that asks meanwhile tries again.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from fairlead.cluster.client import Client
from fairlead.cluster.tls import ServerCertificates
from fairlead.config.schedulerspec import SchedulerSpec
from fairlead.model.ports import Clock, Record
from fairlead.programs.extender.metrics import Metrics
from fairlead.scheduler.answers import ALL
from fairlead.scheduler.extender import Extender, ExtenderTerms
from fairlead.scheduler.http.limits import KIB, Limits
from fairlead.scheduler.http.messages import Routes
from fairlead.scheduler.http.server import Server
from fairlead.scheduler.routes import probes, routes
from fairlead.scheduler.view import View

GRACE_S = 10.0  # for answers under way
# Of the addresses for probes: a crowd there takes nothing from the scheduler.
PROBES = Limits(connections=50, body_bytes=KIB, bodies_bytes=KIB, small_body_bytes=KIB, idle_s=30.0)


async def serve(spec: SchedulerSpec, client: Client, clock: Clock, record: Record) -> None:
    """Until a signal. Raises HostError or NoAccess where it cannot begin."""
    terms = ExtenderTerms(nodes=spec.nodes or ALL, wakes=spec.wake, maps=spec.unhealthy_config_maps)
    extender = Extender(client, View(spec.terms()), terms, record)
    metrics = Metrics(extender, clock)
    server = _server(metrics.instrument(routes(extender)), clock, record)
    observed = _server(probes(extender) | metrics.route, clock, record, PROBES)
    metrics.counters = server.counters
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: record("loop-error", **_explained(context)))
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    tls = _certificates(spec, record)
    working = asyncio.ensure_future(extender.run())
    try:
        addresses = [server.listen(address, None if address.startswith("unix:") else tls) for address in spec.listen]
        addresses += [observed.listen(address) for address in spec.probes]
        resources = ",".join(one.contract.resource for one in extender.view.terms)
        record("listening", addresses=",".join(addresses), tls=tls is not None, resources=resources)
        ready = asyncio.ensure_future(_tell_ready(extender, clock, record))
        stopped = asyncio.ensure_future(stop.wait())
        # The watches have no end. If they have one all the same, that must be seen: answers would grow old.
        await asyncio.wait({working, stopped}, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        stopped.cancel()
        if working.done():
            working.result()
        record("stopping")
    finally:
        await server.close(GRACE_S)
        await observed.close(0.0)
        working.cancel()
        with suppress(asyncio.CancelledError):
            await working
        await client.close()


def _explained(context: Mapping[str, Any]) -> dict[str, str]:
    """What asyncio can raise nowhere: a fact in the journal, in place of its traceback."""
    error = context.get("exception")
    reason = f"{type(error).__name__}: {error}" if error is not None else ""
    return {"what": str(context.get("message", ""))[:200], "reason": reason[:500]}


def _server(table: Routes, clock: Clock, record: Record, limits: Limits | None = None) -> Server:
    return Server(
        table,
        clock,
        limits,
        on_error=lambda path, error: record("request-failed", path=path, reason=f"{type(error).__name__}: {error}"),
        on_shortage=lambda reason: record("out-of-descriptors", socket="extender", reason=reason),
    )


def _certificates(spec: SchedulerSpec, record: Record) -> ServerCertificates | None:
    if not spec.tls.cert:
        return None
    return ServerCertificates(
        spec.tls.cert,
        spec.tls.key,
        spec.tls.client_ca,
        on_trouble=lambda text: record("certificate", reason=text or "it can be used again"),
    )


async def _tell_ready(extender: Extender, clock: Clock, record: Record) -> None:
    """Facts for the journal: when it is complete, and while the API server cannot be asked."""
    told, problem = False, ""
    while True:
        await clock.sleep(0.1 if not told else 1.0)
        if extender.feed.ready and not told:
            told = True
            nodes = {name for packing in extender.view.packings for name in packing.nodes}
            record("ready", nodes=len(nodes), pods=len(list(extender.view.pods())))
        if extender.feed.problem != problem:
            problem = extender.feed.problem
            record("api-server", reason=problem or "it answers again")

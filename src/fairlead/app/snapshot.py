"""Collects what a daemon knows at one moment, for `observe.status`. Reads, never changes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from fairlead.fronts.holders import missing_mount
from fairlead.model.holdings import Holdings, Unknown
from fairlead.observe.status import BackendStatus, EndpointFacts, Snapshot

if TYPE_CHECKING:
    from fairlead.app.daemon import Daemon
    from fairlead.fronts.deviceplugin.endpoint import Endpoint


def take_snapshot(daemon: Daemon, holdings: Holdings | Unknown) -> Snapshot:
    config = daemon.loaded.config
    return Snapshot(
        pid=os.getpid(),
        instance=config.instance,
        started_s=daemon.started_s,
        now_s=daemon.clock.now(),
        monotonic_s=daemon.clock.monotonic(),
        config=daemon.loaded.source,
        directory=str(daemon.directory),
        holdings=holdings,
        holders_problem=""
        if isinstance(holdings, Holdings)
        else missing_mount(daemon.holders.pod_resources, in_pod=daemon.in_pod) or holdings.reason,
        backends=tuple(
            BackendStatus(source.name, len(source.findings.devices), source.scanned_s, source.problem)
            for source in daemon.engine.sources.shown
        ),
        inventory=daemon.engine.inventory,
        conditions=daemon.engine.conditions,
        offering=daemon.engine.listing.offering,
        endpoints=tuple((each.resource, _facts(each)) for each in daemon.supervisor.endpoints.values()),
        elsewhere=daemon.cluster.actual_devices() if daemon.cluster is not None else {},
        cordons=tuple(daemon.engine.cordons.by_device.values()),
        doctor=daemon.questions.examination,
        storms=daemon.storms.raging,
        problems=tuple(_problems(daemon)),
    )


def _facts(endpoint: Endpoint) -> EndpointFacts:
    return EndpointFacts(
        list_bytes=len(endpoint.device_list.frame),
        socket=str(endpoint.socket),
        phase=endpoint.life.phase.value,
        since_s=endpoint.since_s,
        reason=endpoint.waits_for or endpoint.life.reason,
        attempt=endpoint.life.attempt,
        problem=endpoint.problem,
    )


def _problems(daemon: Daemon) -> list[str]:
    problems = [*daemon.problems.values(), *([daemon.journal.problem] if daemon.journal.problem else [])]
    problems += [
        f"backend {source.name}: {problem}"
        for source in daemon.engine.sources.shown
        for problem in (source.problem, *source.findings.problems)
        if problem
    ]
    problems += list(daemon.supervisor.refused.values())
    problems += [each.problem for each in daemon.supervisor.endpoints.values() if each.problem]
    return problems or [why for why in [daemon.why_nothing()] if why]

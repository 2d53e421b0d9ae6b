"""Wires the front of device plugins: the allocator that it asks, and where its endpoints serve."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from fairlead.config.spec import Registration
from fairlead.engine.allocator import Chosen
from fairlead.engine.edits import make_allocator
from fairlead.engine.recent import RecentGrants
from fairlead.fronts.deviceplugin.endpoint import EndpointContext, Handlers
from fairlead.fronts.deviceplugin.supervisor import Supervisor
from fairlead.fronts.sockets import KUBELET_SOCKET, SocketWatch
from fairlead.model.edits import Grant
from fairlead.model.names import ResourceName, socket_name
from fairlead.model.resource import Resource

if TYPE_CHECKING:
    from fairlead.app.daemon import Daemon


def make_supervisor(daemon: Daemon, granted: Callable[[Resource, Grant], None], watch: SocketWatch) -> Supervisor:
    kubelet, web, recorder = daemon.loaded.config.kubelet, daemon.web, daemon.recorder
    called = kubelet.registration is Registration.SOCKET
    template = kubelet.socket_name.replace("{started}", f"{daemon.started_s:.0f}")

    def chosen() -> Chosen | None:
        return daemon.cluster.assigner if daemon.cluster is not None else None

    def node_env(resource: Resource) -> Mapping[str, str]:
        return daemon.cluster.env(resource) if daemon.cluster is not None else {}

    def instrument(resource: ResourceName, handlers: Handlers) -> Handlers:
        if recorder is not None:
            handlers = recorder.instrument(resource, handlers)
        return web.instrument(resource, handlers) if web is not None else handlers

    if recorder is not None:
        daemon.engine.sources.tap = recorder
    return Supervisor(
        make_allocator(
            lambda: daemon.engine.sources.editing,
            daemon.journal.record,
            granted,
            chosen if recorder is None else lambda: recorder.chosen(chosen()),
            node_env if recorder is None else lambda resource: recorder.node_env(node_env(resource)),
            recent=recorder.recent if recorder is not None else RecentGrants(daemon.clock),
            clean=daemon.engine.clean,
            tap=recorder,
            storms=daemon.storms,
        ),
        EndpointContext(
            directory=daemon.directory,
            kubelet_socket=daemon.directory / (kubelet.socket or KUBELET_SOCKET) if called else None,
            watch=watch,
            clock=daemon.clock,
            record=daemon.journal.record,
            description=daemon.description,
            socket_name=partial(socket_name, template=template),
            instrument=instrument,
            registered=recorder.registered if recorder is not None else lambda _request, _problem: None,
        ),
    )

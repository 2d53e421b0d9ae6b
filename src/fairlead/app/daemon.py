"""The daemon: wires the engine, its fronts, the journal and the status socket, and runs until it is stopped.

Owns the order of starting and stopping, and reloading. Everything else has a room of its own.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fairlead.app import firstscan
from fairlead.app.backends import close_backends, entries, memorable, open_backends, tempo_of
from fairlead.app.entry import Entry
from fairlead.app.handover import HandOver
from fairlead.app.problems import Problems
from fairlead.app.questions import Questions
from fairlead.app.reload import ConfigWatch, FileWatch, Reloads, needs_restart
from fairlead.app.supervising import make_supervisor
from fairlead.app.tasks import Tasks
from fairlead.config.load import Loaded, needs_cluster
from fairlead.config.spec import Registration
from fairlead.engine.engine import Engine
from fairlead.engine.storms import Storms
from fairlead.fronts.holders import Holders, missing_mount
from fairlead.fronts.podresources import DEADLINE_S
from fairlead.fronts.sockets import SocketWatch
from fairlead.kit.calls import contain_tasks
from fairlead.kit.clock import SystemClock
from fairlead.model.edits import Grant
from fairlead.model.errors import FairleadError
from fairlead.model.holdings import Holdings, Unknown
from fairlead.model.ports import Backend, Clock
from fairlead.model.resource import Resource
from fairlead.observe.journal import Journal

if TYPE_CHECKING:
    from fairlead.app.audit import Auditor
    from fairlead.app.clusterside import ClusterSide
    from fairlead.app.recorder import Recorder
    from fairlead.app.web import Web

PATIENCE_S = 5.0  # for backends that have not answered yet, while others have devices to offer
LEAVE_S = 2.0  # for an endpoint to give its resource up
RESETTLE_DEADLINE_S = 1.0  # nothing else is settled meanwhile

Reload = Callable[[], Loaded]


class Daemon:
    """One node's devices, led into pods. `run` returns after `stop`; which signals call that, `start` decides."""

    def __init__(
        self,
        loaded: Loaded,
        *,
        backends: Mapping[str, Backend] | None = None,
        reload: Reload | None = None,
        watch: ConfigWatch | None = None,
        clock: Clock | None = None,
        journal: Journal | None = None,
        description: str = "a daemon in another program",
    ) -> None:
        """`description`: of this process, for a second daemon that meets its lock or its socket."""
        self.clock = clock or SystemClock()
        self.journal = journal or Journal(self.clock)
        self.loaded = loaded
        self.started_s = self.clock.now()
        self.problems = Problems(self.journal.record)
        self.holders = Holders(self.clock, Path(loaded.config.kubelet.directory), loaded.config.kubelet.pod_resources)
        self.questions = Questions(self)
        # For the process that it is: see `start`.
        self.on_scanning: Callable[[], None] = lambda: None
        self.on_ready: Callable[[], None] = lambda: None
        self.on_stopping: Callable[[], None] = lambda: None
        self.description = description
        self._given = backends
        self._reload = reload
        self._reloads = Reloads(reload, self._adopt, partial(self.problems.note, "config"), self.clock)
        self._config = watch or FileWatch(Path(loaded.source), self.clock)
        self.stopped = asyncio.Event()
        self._started = asyncio.Event()  # the sources run, and can be replaced
        self._reload_on_start = self._stale = self._health_stale = False
        self._ready = self.spoken = False  # spoken: every backend has scanned once
        self.in_pod = self.superseded = False  # superseded: another daemon has taken over, and may still fail
        self._failure: FairleadError | None = None
        self.cluster: ClusterSide | None = None
        self._cluster_task: asyncio.Task[None] | None = None
        self._started_with = loaded.config
        self.tasks = Tasks(self.journal.record, self.problems.note)
        self.auditor: Auditor | None = None  # once an audit was asked for
        self.web: Web | None = None
        if loaded.config.http.listen:
            from fairlead.app.web import Web  # noqa: PLC0415 - off by default

            self.web = Web(self)
        kubelet = loaded.config.kubelet
        watched = kubelet.registration is Registration.WATCHER
        self.directory = Path(kubelet.watcher_directory if watched else kubelet.directory)
        self.recorder: Recorder | None = None
        if loaded.config.record.file:
            from fairlead.app.recorder import Recorder  # noqa: PLC0415 - off by default

            self.recorder = Recorder(self, Path(loaded.config.record.file), loaded.config.record.max_size)
            self.holders.on_answer = self.recorder.told_holders
        self.engine = Engine(
            self.directory,
            self.clock,
            self.journal.record,
            self.problems.note,
            self.recorder.holders if self.recorder is not None else self.holders,
            on_change=self.refresh,
            on_health=self.refresh_health,
            on_fault=lambda cause: self.cluster and self.cluster.fault(cause),
        )
        self.entry = Entry(self)
        self._watch = SocketWatch(self.directory, self.clock)
        self.storms = Storms(self.clock, self.journal.record, loaded.config.storm.tuning())
        self.supervisor = make_supervisor(self, self._granted, self._watch)

    # --- Life -----------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        self.stopped.set()

    def fail(self, error: FairleadError) -> None:
        """Ends it with this error."""
        self._failure = error
        self.stop()

    async def run(self) -> None:
        """Raises HostError or ConfigError if it cannot start at all."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self.tasks.on_loop_error)
        contain_tasks(loop)
        backends = dict(self._given or {})
        try:
            if self._given is None:
                open_backends(self.loaded, self.clock, opened=backends)
            cluster = self._open_cluster(self.loaded)
            await self.entry.enter()
        except BaseException:
            await close_backends(backends, self.journal.record)
            raise
        try:
            self.journal.record("started", pid=os.getpid(), config=self.loaded.source, directory=str(self.directory))
            self.engine.sources.start(backends, tempo_of(self.loaded.config), remembered=self.entry.recall())
            self._started.set()
            if self._reload_on_start:
                self.reload()
            self.on_scanning()
            self.tasks.spawn("sockets", self._watch.run())
            if self.web is not None:
                self.tasks.spawn("http", self.web.run())
            if self.entry.taking_over is None:
                self.tasks.spawn("handover", HandOver(self).run())
            self.tasks.spawn("first-scan", self._await_first_scan())
            self.tasks.spawn("holders", self.holders.follow(self.engine.listing, self.refresh, self.supervisor.repeat))
            self._start_cluster(cluster)
            if self.loaded.config.audit.interval:
                self.tasks.spawn("audit", self.audit().run())
            if self._reload is not None and self._config.watches():
                self.tasks.spawn("config", self._config.run(self.reload, self.problems.note))
            await self.stopped.wait()
            if self._failure is not None:
                raise self._failure
        finally:
            self.journal.record("stopping")
            self.on_stopping()
            await self._end()
            self.journal.record("stopped")
            self.journal.flush()

    async def _end(self) -> None:
        self.stopped.set()
        await self.supervisor.stop()
        await self._reloads.stop()
        await self.tasks.end(self.engine.sources.stop())
        self.holders.close()
        self.storms.close()
        if self.auditor is not None:
            self.auditor.close()
        await self.entry.end()
        if self.recorder is not None:
            self.recorder.close()

    # --- From devices to resources --------------------------------------------------------------------------------

    async def _await_first_scan(self) -> None:
        """A device that is listed late is lost to its pod: so nothing is offered before every backend has spoken once.

        Others do not wait for one that hangs for longer than `PATIENCE_S`.
        """
        required = self.loaded.config.scan.required
        await self.engine.sources.first_scans(math.inf if required else PATIENCE_S)
        for source in (each for each in self.engine.sources.silent if not each.remembered):
            self.journal.record("backend-silent", backend=source.name, reason="the others are offered without it")
        if required and firstscan.failed(self):
            return
        if any(rule.also or rule.terms.memory for rule in self.loaded.rules):
            await self.read_holders()
        if not await self.entry.take():
            return
        self._ready = self.spoken = True
        self.settle()
        if self.entry.taking_over is not None:
            self.tasks.spawn("take-over", self.entry.taking_over.finish())
            self.tasks.spawn("handover", HandOver(self).run())
        if firstscan.lacks(self):
            return
        if not self.supervisor.endpoints:
            self.journal.record("nothing-offered", reason=self.why_nothing())
        self.on_ready()
        # Pods may hold what an earlier daemon offered under other rules.
        await self.read_holders()
        if hint := missing_mount(self.holders.pod_resources, in_pod=self.in_pod):
            self.journal.record("holders-unknown", reason=hint)
        self.refresh()
        await firstscan.confirm(self, required=required)

    def why_nothing(self) -> str:
        """Why no resource is served; empty while some are, and before every backend has spoken."""
        if self.supervisor.endpoints or not self.spoken:
            return ""
        return self.engine.why_nothing(self.supervisor.refused)

    def refresh(self) -> None:
        """Something changed. Changes of one moment are settled together."""
        if self._ready and not self._stale:
            self._stale = True
            asyncio.get_running_loop().call_soon(self.settle)

    def refresh_health(self) -> None:
        """The condition of a device changed, and nothing else."""
        if self._ready and not self._health_stale:
            self._health_stale = True
            asyncio.get_running_loop().call_soon(self._settle_health)

    def _settle_health(self) -> None:
        stale, self._health_stale = self._health_stale, False  # not stale: `settle` has done it in between
        # Where a `settle` is to come, it does this too: a device that failed may be gone, and has no condition then.
        if stale and self._ready and not self._stale and not self.stopped.is_set():
            self.engine.settle_health()
            self.supervisor.update(self.engine.conditions)  # the kubelet first: it may start a pod on the device
            if self.recorder is not None:
                self.recorder.settled_health()
            self._tell_cluster()
            self.engine.keep_health()

    def settle(self) -> None:
        """From the engine to every front."""
        self._stale = self._health_stale = False
        if self.stopped.is_set() or self.superseded or not self._ready:
            return
        self.engine.settle(self.loaded.rules, self.supervisor.unsent)
        self._tell_cluster()
        self.supervisor.apply(self.engine.resources, self.engine.conditions)
        if self.recorder is not None:
            self.recorder.settled()
        self.engine.keep_health()
        self.holders.wake()

    def _tell_cluster(self) -> None:
        if self.cluster is not None:
            engine = self.engine
            self.cluster.tell(self.loaded, engine.inventory, engine.conditions, engine.resources)

    def audit(self) -> Auditor:
        if self.auditor is None:
            from fairlead.app.audit import Auditor  # noqa: PLC0415 - off by default

            self.auditor = Auditor(self)
        return self.auditor

    @property
    def is_settled(self) -> bool:
        """Nothing waits to be taken into account: what is listed is what there is."""
        return self._ready and not (self._stale or self._health_stale)

    def _granted(self, resource: Resource, grant: Grant) -> None:
        if self.recorder is not None:
            self.recorder.granted(resource.name, grant.slots)
        if self.auditor is not None:
            self.auditor.granted(resource.name, grant.slots)
        if self.engine.granted(resource, grant):
            self.settle()

    # --- Another daemon takes over --------------------------------------------------------------------------------

    async def supersede(self) -> None:
        """Gives the directory up. Calls that still come are answered as before."""
        self.superseded = True
        await self.supervisor.supersede(LEAVE_S)
        await self.entry.leave()
        if self.recorder is not None:
            self.recorder.release()

    async def leave_cluster(self) -> None:
        """The daemon that took over speaks for this node now."""
        self.cluster = None
        if (task := self._cluster_task) is not None:
            await self.tasks.end_one(task)

    async def resume(self) -> None:
        """Serves again. Raises HostError while another daemon has the directory."""
        await self.entry.occupy()
        self.entry.recall(use=False)
        self.superseded = False
        if self.recorder is not None:
            self.recorder.resume()
        self._start_cluster(self._open_cluster(self.loaded))
        self.supervisor.resume()
        self.settle()

    # --- The cluster ----------------------------------------------------------------------------------------------

    def _open_cluster(self, loaded: Loaded) -> ClusterSide | None:
        if not needs_cluster(loaded.config):
            return self.cluster
        if self.cluster is not None:
            self.cluster.open(loaded)
            return self.cluster
        from fairlead.app.clusterside import ClusterSide  # noqa: PLC0415 - what speaks to a cluster costs megabytes

        return ClusterSide(loaded, self.clock, self.journal.record, self.problems.note, self._ask_holders)

    def _start_cluster(self, cluster: ClusterSide | None) -> None:
        if cluster is not None and self.cluster is None and not self.superseded:
            self.cluster = cluster
            self._cluster_task = self.tasks.spawn("cluster", cluster.run())

    async def knock(self) -> None:
        """Looks whether the API server answers, before its silence is reported as health."""
        if self.cluster is not None:
            await self.cluster.knock()

    async def _ask_holders(self, timeout_s: float) -> Holdings | Unknown:
        await self.read_holders(timeout_s)
        return self.holdings

    @property
    def holdings(self) -> Holdings | Unknown:
        return self.holders.known

    async def read_holders(self, timeout_s: float = DEADLINE_S) -> None:
        foreign = any(rule.terms.memory and rule.terms.memory.ids for rule in self.loaded.rules)
        await self.holders.read(timeout_s, checkpoint=foreign and not self._ready)

    # --- Reload ---------------------------------------------------------------------------------------------------

    def reload(self, *, fresh: bool = False) -> None:
        """Validate, then apply. A bad file keeps the old configuration. Always scans again, with `fresh` as if anew."""
        if not self._started.is_set():  # a signal may come while the status socket opens: `run` asks again
            self._reload_on_start = True
            return
        self._reloads.ask()
        for source in self.engine.sources.live.values():
            source.rescan(fresh=fresh)

    async def _adopt(self, new: Loaded) -> None:
        old = self.loaded
        if new.config != old.config:
            before, after = entries(old.config), entries(new.config)
            same = {name for name in before if self._given is not None or before[name] == after.get(name)}
            opened: dict[str, Backend] = {}
            try:
                if self._given is None:
                    opening = partial(open_backends, new, self.clock, keep=same, opened=opened)
                    await self._reloads.aside(opening, "opening the backends")
                cluster = self._open_cluster(new)
            except BaseException:
                await close_backends(opened, self.journal.record)
                raise
            self._start_cluster(cluster)
            self.loaded = new
            self.storms.tuning = new.config.storm.tuning()
            self.engine.reconfigure(memorable(new.config))
            self.entry.open_cleaner()
            self.holders.pod_resources = new.config.kubelet.pod_resources
            self._ready = False  # until it is known who holds what: see _resettle
            self.journal.record("config-applied", source=new.source, rules=len(new.rules))
            if self.recorder is not None:
                self.recorder.configured()
            fixed = needs_restart(self._started_with, new.config)
            self.problems.note("restart", f"a restart is needed for: {', '.join(fixed)}" if fixed else "")
            self.engine.sources.replace(same, opened, tempo_of(new.config))
            self.tasks.spawn("resettle", self._resettle())
        self.problems.note("config", "")

    async def _resettle(self) -> None:
        """Settles under new rules, knowing who holds what: a device must not be given away a second time."""
        try:
            await self.read_holders(timeout_s=RESETTLE_DEADLINE_S)
        finally:
            self._ready = self.spoken  # else the first scan settles, with these rules
        self.settle()

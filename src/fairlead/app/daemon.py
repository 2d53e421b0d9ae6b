"""The daemon: wires sources, rules, supervisor, journal and its own socket, and runs until told to stop.

Owns the order of starting and stopping, and reloading. Everything else has a room of its own.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairlead.app.calls import contain_tasks
from fairlead.app.holders import Holders, cure
from fairlead.app.opening import entries, open_backends, tempo_of
from fairlead.app.outfit import make_outfit
from fairlead.app.questions import Questions
from fairlead.app.reload import FileWatch, Reloads, needs_restart
from fairlead.app.signals import Signals
from fairlead.app.sources import Sources
from fairlead.app.stock import Ledger, inventory_of, preparing
from fairlead.app.unitbook import UnitBook
from fairlead.app.units import Units
from fairlead.app.unittold import UnitsTold
from fairlead.app.warm import load_ahead, warm_up
from fairlead.config.load import Loaded, needs_cluster
from fairlead.config.spec import Registration
from fairlead.kubelet.podresources import DEADLINE_S, Holdings, Unknown
from fairlead.kubelet.sockets import KUBELET_SOCKET, DirectoryLock, SocketWatch
from fairlead.kubelet.supervisor import Supervisor
from fairlead.kubelet.unit import Place
from fairlead.model.clock import SystemClock
from fairlead.model.edits import Grant
from fairlead.model.errors import BackendError, FairleadError, HostError, Oversize
from fairlead.model.inventory import EMPTY
from fairlead.model.names import DeviceId, ResourceName, SlotId, socket_name
from fairlead.model.ports import Backend, Clock
from fairlead.model.resource import Resource
from fairlead.observe.control import Control
from fairlead.observe.journal import Journal

if TYPE_CHECKING:
    from fairlead.app.upward import Upward
    from fairlead.kubelet.service import Assigns

RESETTLE_DEADLINE_S = 1.0  # nothing else is settled meanwhile

# Registering comes first; a kubelet asks for its first device no sooner than this.
WARM_UP_AFTER_S = 0.1

Reload = Callable[[], Loaded]


class Daemon:
    """One node's devices, led into pods. `run` returns when a signal, or `stop`, says so."""

    def __init__(
        self,
        loaded: Loaded,
        *,
        backends: Mapping[str, Backend] | None = None,
        reload: Reload | None = None,
        clock: Clock | None = None,
        journal: Journal | None = None,
    ) -> None:
        self.clock = clock or SystemClock()
        self.journal = journal or Journal(self.clock)
        self.loaded = loaded
        self.started_s = self.clock.now()
        self.problems: dict[str, str] = {}
        self.sources = Sources(self.clock, self.journal.record, self.refresh)
        self.inventory = EMPTY
        self.holders = Holders(self.clock)
        self.questions = Questions(self)
        # For the process that it is: see `process`.
        self.on_signal: Callable[[int], None] = lambda _number: None
        self.on_ready: Callable[[], None] = lambda: None
        self.on_stopping: Callable[[], None] = lambda: None
        self._given = backends
        self._reload = reload
        self._reloads = Reloads(reload, self._adopt, partial(self._note, "config"), self.clock)
        self._file = FileWatch(Path(loaded.source), self.clock)
        self._stopping = asyncio.Event()
        self._stale = False
        self._ready = False
        self._spoken = False  # every backend has scanned once
        self._failure: FairleadError | None = None
        self._upward: Upward | None = None
        self._started_with = loaded.config
        self._units_told = UnitsTold(self.journal.record)
        self._tasks: set[asyncio.Task[None]] = set()

        kubelet = loaded.config.kubelet
        watched = kubelet.registration is Registration.WATCHER
        called = kubelet.registration is Registration.SOCKET
        self.directory = Path(kubelet.watcher_directory if watched else kubelet.directory)
        self.ledger = Ledger(Units(UnitBook(self.directory), self.holders.on_disk, self.holders.listed))
        self._lock = DirectoryLock(self.directory, _lock_name(loaded.config.instance))
        self._watch = SocketWatch(self.directory, self.clock)
        self.supervisor = Supervisor(
            make_outfit(lambda: self.sources.speaking, self._granted, self._assigns, self._node_env),
            Place(
                directory=self.directory,
                kubelet_socket=self.directory / (kubelet.socket or KUBELET_SOCKET) if called else None,
                watch=self._watch,
                clock=self.clock,
                record=self.journal.record,
                whose=_command(),
                socket_name=partial(socket_name, template=kubelet.socket_name),
            ),
        )

    # --- Life -----------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        self._stopping.set()

    async def run(self) -> None:
        """Raises HostError or ConfigError if it cannot start at all."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._on_loop_error)
        contain_tasks(loop)
        backends = self._given if self._given is not None else open_backends(self.loaded, self.clock)
        upward = self._open_upward(self.loaded)
        self._enter_directory()
        control = await self._open_control()
        try:
            with Signals(self.stop, partial(self.reload, fresh=True), self.on_signal):
                self.journal.record(
                    "started", pid=os.getpid(), config=self.loaded.source, directory=str(self.directory)
                )
                self.sources.start(backends, tempo_of(self.loaded.config))
                load_ahead(cluster=upward is not None)  # while the backends scan
                self._spawn("sockets", self._watch.run())
                self._spawn("first-scan", self._await_first_scan())
                self._spawn(
                    "holders",
                    self.holders.follow(self.ledger, lambda: self.loaded.config, self.refresh, self.supervisor.repeat),
                )
                self._start_upward(upward)
                file = self._file
                if self._reload is not None and file.look() is not None:  # a command line is a source too, and no file
                    self._spawn("config", file.run(self.reload))
                await self._stopping.wait()
            if self._failure is not None:
                raise self._failure
        finally:
            self.journal.record("stopping")
            self.on_stopping()
            await self._end(control)
            self.journal.record("stopped")
            self.journal.flush()

    def _enter_directory(self) -> None:
        try:
            self.directory.mkdir(mode=0o750, parents=True, exist_ok=True)
        except OSError as error:
            raise HostError(
                f"plugin directory {self.directory}: {error.strerror}. Choose another with --plugin-dir"
            ) from error
        self._lock.acquire(_command())
        self.ledger.units.book.read()

    async def _open_control(self) -> Control | None:
        """Its own socket. A host that has no place for it keeps nobody from serving devices."""
        path = self.loaded.config.status.socket
        if not path:
            return None
        control = self.questions.control(Path(path))
        try:
            await control.start()
        except HostError as error:
            if control.taken:
                self._lock.release()
                raise
            self._note("status", f"{error}. `fairlead status` does not reach this daemon")
            return None
        return control

    async def _end(self, control: Control | None) -> None:
        self._stopping.set()
        await self.supervisor.stop()
        await self._reloads.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, self.sources.stop(), return_exceptions=True)
        self.holders.close()
        if control is not None:
            await control.close()
        self._lock.release()

    def _spawn(self, name: str, work: Any) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_end)

    def _on_task_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error: BaseException | None = None
        if not task.cancelled():
            error = task.exception()
        elif not self._stopping.is_set():
            error = asyncio.CancelledError("not by the daemon")
        if error is not None:
            reason = f"{type(error).__name__}: {error}"
            self.journal.record("task-crashed", task=task.get_name(), reason=reason)
            self._note(task.get_name(), f"the task {task.get_name()!r} has ended: {reason}. Restart the daemon")

    def _on_loop_error(self, _loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        """What asyncio could tell nobody else: a fact, in place of its traceback."""
        error = context.get("exception")
        reason = f"{type(error).__name__}: {error}" if error is not None else ""
        self.journal.record("loop-error", what=str(context.get("message", ""))[:200], reason=reason[:500])

    # --- From devices to resources --------------------------------------------------------------------------------

    async def _await_first_scan(self) -> None:
        """Nothing is offered before every backend has spoken once: a device that is listed late is lost to its pod."""
        await self.sources.first_scans()
        problems = [
            f"backend {source.name}: {source.problem}" for source in self.sources.live.values() if source.problem
        ]
        if problems and self.loaded.config.scan.required:
            self._failure = BackendError("; ".join(problems))
            self.stop()
            return
        if any(rule.also or rule.memory for rule in self.loaded.rules):
            await self.read_holders()
        self._ready = self._spoken = True
        self.settle()
        if needed := self.ledger.assignment.needed:
            self._failure = Oversize("; ".join(needed))
            self.stop()
            return
        if not self.supervisor.units:
            self.journal.record("nothing-offered", reason=self.why_nothing())
        asyncio.get_running_loop().call_later(WARM_UP_AFTER_S, warm_up)
        self.on_ready()
        # Pods may hold what an earlier daemon offered under other rules.
        await self.read_holders()
        if unmounted := cure(self.loaded.config):
            self.journal.record("holders-unknown", reason=unmounted)
        self.refresh()

    def why_nothing(self) -> str:
        """Why no resource is served; empty while some are, and before every backend has spoken."""
        if self.supervisor.units or not self._spoken:
            return ""
        from fairlead.app.nothing import why_nothing  # noqa: PLC0415 - most daemons have devices

        return why_nothing(self.sources.speaking.values(), self.ledger.assignment, self.supervisor.refused)

    def refresh(self) -> None:
        """Something changed. Changes of one moment are settled together."""
        if self._ready and not self._stale:
            self._stale = True
            asyncio.get_running_loop().call_soon(self.settle)

    def settle(self) -> None:
        self._stale = False
        if self._stopping.is_set() or not self._ready:
            return
        sources = list(self.sources.speaking.values())
        self.inventory = inventory_of(sources)
        held = self.holders.held
        self.ledger.units.asked_s = self.holders.asked_s
        now_s = self.clock.monotonic()  # how long a slot has been gone, whatever is done to the wall clock
        resources = self.ledger.settle(
            self.inventory, self.loaded.rules, held, preparing(sources), now_s, self.holders.is_free
        )
        self._note("rules", "; ".join(self.ledger.problems))
        self._units_told.tell(self.ledger)
        self._note("units", self.ledger.units.book.save(now_s))  # before the kubelet hears of them
        if self._upward is not None:
            self._upward.tell(self.loaded, self.inventory, resources)
        self.supervisor.apply(resources)

    def _granted(self, resource: Resource, grant: Grant) -> None:
        self.ledger.units.granted(resource.name, self.clock.monotonic())
        # At once: the next Allocate may be for the same device in its other form.
        if self.ledger.exclusive:
            self.ledger.claim(resource.name, grant.slots, self.clock.monotonic())
            self.settle()

    # --- The cluster ----------------------------------------------------------------------------------------------

    def _open_upward(self, loaded: Loaded) -> Upward | None:
        if not needs_cluster(loaded.config):
            return self._upward
        if self._upward is not None:
            self._upward.open(loaded)
            return self._upward
        from fairlead.app.upward import Upward  # noqa: PLC0415 - what speaks to a cluster costs megabytes

        return Upward(loaded, self.clock, self.journal.record, self._note, self._ask_holders)

    def _start_upward(self, upward: Upward | None) -> None:
        if upward is not None and self._upward is None:
            self._upward = upward
            self._spawn("cluster", upward.run())

    async def knock(self) -> None:
        """Looks whether the API server answers, before its silence is reported as health."""
        if self._upward is not None:
            await self._upward.knock()

    def _assigns(self) -> Assigns | None:
        return self._upward.assigner if self._upward is not None else None

    def _node_env(self, resource: Resource) -> Mapping[str, str]:
        return self._upward.env(resource) if self._upward is not None else {}

    def told(self) -> Mapping[tuple[ResourceName, SlotId], DeviceId]:
        return self._upward.told() if self._upward is not None else {}

    async def _ask_holders(self, timeout_s: float) -> Holdings | Unknown:
        await self.read_holders(timeout_s)
        return self.holdings

    def _note(self, topic: str, problem: str) -> None:
        if problem and self.problems.get(topic) != problem:
            self.journal.record("problem", topic=topic, reason=problem)
        if problem:
            self.problems[topic] = problem
        else:
            self.problems.pop(topic, None)

    @property
    def holdings(self) -> Holdings | Unknown:
        return self.holders.known

    async def read_holders(self, timeout_s: float = DEADLINE_S) -> None:
        foreign = any(rule.memory and rule.memory.ids for rule in self.loaded.rules)
        await self.holders.read(self.loaded.config, timeout_s, checkpoint=foreign and not self._ready)

    # --- Reload ---------------------------------------------------------------------------------------------------

    def reload(self, *, fresh: bool = False) -> None:
        """Validate, then apply. A bad file keeps the old configuration. Always scans again, with `fresh` as if anew."""
        self._reloads.ask()
        for source in self.sources.live.values():
            source.rescan(fresh=fresh)

    async def _adopt(self, new: Loaded) -> None:
        old = self.loaded
        if new.config != old.config:
            before, after = entries(old.config), entries(new.config)
            same = {name for name in before if self._given is not None or before[name] == after.get(name)}
            opened: Mapping[str, Backend] = {}
            if self._given is None:
                opening = partial(open_backends, new, self.clock, keep=same)
                opened = await self._reloads.aside(opening, "opening the backends")
            upward = self._open_upward(new)
            self._start_upward(upward)
            self.loaded = new
            self._ready = False  # until it is known who holds what: see _resettle
            self.journal.record("config-applied", source=new.source, rules=len(new.rules))
            fixed = needs_restart(self._started_with, new.config)
            self._note("restart", f"a restart is needed for: {', '.join(fixed)}" if fixed else "")
            self.sources.swap(same, opened, tempo_of(new.config))
            self._spawn("resettle", self._resettle())
        self._note("config", "")

    async def _resettle(self) -> None:
        """Settles under new rules, knowing who holds what: a device must not be given away a second time."""
        try:
            await self.read_holders(timeout_s=RESETTLE_DEADLINE_S)
        finally:
            self._ready = self._spoken  # else the first scan settles, with these rules
        self.settle()


def _command() -> str:
    return " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])


def _lock_name(instance: str) -> str:
    return instance if instance == "fairlead" else f"fairlead-{instance}"

"""The daemon's place in the plugin directory: the lock, the status socket, the units in use, the
cordons, the devices that must be cleaned, and who served before.

Owns what only one daemon of a name may have at a time, and the order in which it is taken and given up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fairlead.app.backends import memorable
from fairlead.app.handover import TakeOver
from fairlead.config.spec import Registration
from fairlead.fronts import handover
from fairlead.fronts.sockets import DirectoryLock
from fairlead.model.errors import HostError
from fairlead.model.inventory import Findings
from fairlead.model.names import ResourceName, SlotId

if TYPE_CHECKING:
    from fairlead.app.daemon import Daemon
    from fairlead.observe.control import Control

LEAVES_S = 10.0  # a daemon that ends closes its line first, and gives the directory up last
LEAVES_LOOK_S = 0.05


class Entry:
    def __init__(self, daemon: Daemon) -> None:
        instance = daemon.loaded.config.instance
        self._name = instance if instance == "fairlead" else f"fairlead-{instance}"
        self.handover_socket = handover.path_in(daemon.directory, self._name)
        self.taking_over: TakeOver | None = None  # from the daemon that serves while we scan
        self._daemon = daemon
        self._lock = DirectoryLock(daemon.directory, self._name)
        self._control: Control | None = None
        self._cleaning: asyncio.Task[None] | None = None

    async def enter(self) -> None:
        """Raises HostError if another daemon serves here, unless it can be taken over from."""
        daemon = self._daemon
        try:
            daemon.directory.mkdir(mode=0o750, parents=True, exist_ok=True)
        except OSError as error:
            raise HostError(
                f"plugin directory {daemon.directory}: {error.strerror}. Choose another with --plugin-dir"
            ) from error
        try:
            await self.occupy()
        except HostError as taken:
            if self._lock.held or not daemon.loaded.config.take_over:
                raise
            self.taking_over = await TakeOver.begin(daemon, self.handover_socket, taken)

    async def occupy(self) -> None:
        """Raises HostError while another daemon serves here."""
        daemon = self._daemon
        self._lock.acquire(daemon.description)
        if "{started}" in (template := daemon.loaded.config.kubelet.socket_name):
            from fairlead.fronts.deadsockets import remove_dead_sockets  # noqa: PLC0415 - few names have a time

            remove_dead_sockets(daemon.directory, template)
        daemon.engine.read_units()
        daemon.engine.cordons.open(daemon.directory / f".{self._name}.cordons")
        self.open_cleaner()
        await self._open_control()

    def open_cleaner(self) -> None:
        """Where a rule asks for a clean-up. Also after a reload."""
        daemon = self._daemon
        path = daemon.directory / f".{self._name}.unclean"

        async def held() -> Mapping[ResourceName, frozenset[SlotId]] | None:
            await daemon.read_holders()
            return daemon.holders.held

        if daemon.engine.open_cleaner(path, daemon.loaded.rules, held, daemon.refresh_health):
            assert daemon.engine.cleaner is not None
            self._cleaning = daemon.tasks.spawn("cleanup", daemon.engine.cleaner.run())

    async def _open_control(self) -> None:
        """The daemon's own socket. A host that has no place for it does not keep the daemon from serving devices."""
        daemon = self._daemon
        path = daemon.loaded.config.status.socket
        if not path:
            return
        control = daemon.questions.control(Path(path))
        try:
            await control.start()
        except HostError as error:
            if control.taken:
                self._lock.release()
                raise
            daemon.problems.note("status", f"{error}. `fairlead status` does not reach this daemon")
            return
        self._control = control

    async def take(self) -> bool:
        """All is ready to be offered: the daemon before us gives the directory up. False: it cannot be had."""
        if self.taking_over is not None:
            await self.taking_over.scanned()
            released = await self.taking_over.release()
            try:
                await self._occupy_within(0.0 if released else LEAVES_S)
            except HostError as error:
                self._daemon.fail(error)
                return False
            self.recall(use=False)
        return True

    async def _occupy_within(self, patience_s: float) -> None:
        clock = self._daemon.clock
        limit_s = clock.monotonic() + patience_s
        while True:
            try:
                return await self.occupy()
            except HostError:
                if clock.monotonic() >= limit_s:
                    raise
            await clock.sleep(LEAVES_LOOK_S)

    def recall(self, *, use: bool = True) -> Mapping[str, Findings]:
        """What a daemon of this boot found before, unless that is switched off. Nothing while another one serves.

        Not `use`: the sources have scanned already.
        """
        daemon = self._daemon
        config = daemon.loaded.config
        # The kubelet looks at every file in a directory of its plugin watcher, and complains of one that is renamed.
        watched = config.kubelet.registration is Registration.WATCHER
        if not config.scan.remember or watched or not self._lock.held:
            return {}
        path = daemon.directory / f".{self._name}.inventory"
        return daemon.engine.recall(path, memorable(config), use=use)

    async def leave(self) -> None:
        self._daemon.engine.last = None  # the file is the next daemon's
        control, self._control = self._control, None
        if control is not None:
            await control.close()
        await self._close_cleaner()
        self._daemon.engine.cordons.close()
        self._lock.release()

    async def end(self) -> None:
        """After that the daemon before us may serve again, if it is still there."""
        await self.leave()
        if self.taking_over is not None:
            self.taking_over.close()

    async def _close_cleaner(self) -> None:
        """Commands that run are ended, and run again with the next daemon."""
        engine = self._daemon.engine
        if self._cleaning is not None and engine.cleaner is not None:
            await self._daemon.tasks.end_one(self._cleaning)
            await engine.cleaner.close()
            self._cleaning = engine.cleaner = None

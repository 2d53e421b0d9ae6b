"""NodeConfig: a label of the node chooses the configuration of a daemon, among the files of a directory.

The daemon follows the label by itself: there is no second container, no link and no signal. A label that names no file
keeps what is in force. The last choice is kept beside the sockets: a daemon that starts while the API server is away
takes it.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

from msgspec import Struct

from fairlead.app.reload import DEADLINE_S, POLL_S, Note, stamp
from fairlead.cluster.client import Client
from fairlead.cluster.nodes import NodeSnapshot, NodeWatch
from fairlead.config.choice import NoChoice, choose, list_files, path_of
from fairlead.kit import files
from fairlead.kit.owner import Owner
from fairlead.kit.supervise import Ended, first_cause
from fairlead.model.errors import FairleadError
from fairlead.model.ports import Clock

PATIENCE_S = 5.0  # for the API server, where an earlier choice is known
NAME_MAX_BYTES = 253  # of a key of a ConfigMap


class ChoiceTerms(Struct, frozen=True):
    directory: str
    flag: str  # what names the directory, for errors
    label: str
    default: str = ""
    fallbacks: tuple[str, ...] = ("named", "single")
    node: str = ""
    remembered: str = ""  # the file that keeps the last choice


class NodeConfig:
    """Call `begin` before the daemon; it runs `run` as a task."""

    def __init__(
        self, terms: ChoiceTerms, open_client: Callable[[], Client], clock: Clock, say: Callable[[str], None]
    ) -> None:
        """`open_client`: for each event loop a new one."""
        self._terms = terms
        self._open_client = open_client
        self._clock = clock
        self._say = say
        self._name: str | None = None
        self._chosen = False

    @property
    def path(self) -> str:
        return str(path_of(self._terms.directory, self._name))

    # --- The start ------------------------------------------------------------------------------------------------

    def begin(self) -> bool:
        """Waits until something is chosen. False: a signal came first. Raises NoChoice, HostError or NoAccess."""
        return asyncio.run(self._begin())

    async def _begin(self) -> bool:
        work = asyncio.ensure_future(self._choose_first())
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, work.cancel)
        await asyncio.wait({work})
        if work.cancelled():
            return False
        work.result()
        return True

    async def _choose_first(self) -> None:
        remembered, said = self._recall(), ""
        with suppress(TimeoutError):
            async with self._watching() as watch, asyncio.timeout(PATIENCE_S if remembered else None):
                async for now in watch.latest.follow():
                    if now.complete:
                        self._choose(now, self._available(), self._say)
                        self._remember()
                        return
                    if now.problem and now.problem != said:
                        said = now.problem
                        self._say(f"waiting for the label {self._terms.label} of this node: {said}")
        self._name, self._chosen = remembered, True
        self._say(f"the API server does not answer: {remembered}, the configuration of the last run, is used")

    # --- Afterwards -----------------------------------------------------------------------------------------------

    def watches(self) -> bool:
        return True

    async def run(self, on_change: Callable[[], None], note: Note) -> None:
        """Calls when another file is chosen, and when the chosen one is edited."""
        owner = Owner("config-label", self._clock)
        known, seen = (self.path, stamp(self.path)), None
        try:
            async with self._watching() as watch:
                while True:
                    await self._clock.sleep(POLL_S)
                    now = watch.latest.version, stamp(self._terms.directory)
                    if now != seen and watch.latest.value.complete:
                        try:
                            available = await owner.call(self._available, deadline_s=DEADLINE_S, what="listing files")
                            if self._choose(watch.latest.value, available, partial(note, "config-label")):
                                await owner.call(self._remember)
                            seen = now
                        except FairleadError as error:
                            note("config-label", str(error))
                    found = stamp(self.path)
                    if found is not None and (self.path, found) != known:
                        known = self.path, found
                        on_change()
        finally:
            owner.close()

    # --- The choice -----------------------------------------------------------------------------------------------

    def _choose(self, now: NodeSnapshot, available: Sequence[str], say: Callable[[str], None]) -> bool:
        """Whether another one is chosen. Raises NoChoice where there is nothing to keep."""
        terms = self._terms
        label = now.node.metadata.labels.get(terms.label, "") if now.node is not None else ""
        problem = "" if now.node is not None else f"there is no node {terms.node}: as without a label"
        try:
            name = choose(label, available, terms.default, terms.fallbacks)
        except NoChoice as error:
            if self._chosen:
                say(f"{error}; {self._name or 'the empty one'} stays in force")
                return False
            if not label:
                raise
            name = choose("", available, terms.default, terms.fallbacks)
            problem = f"{error}; {name or 'the empty one'} is used instead"
        if problem or self._chosen:
            say(problem)
        changed = not self._chosen or name != self._name
        self._name, self._chosen = name, True
        return changed

    def _available(self) -> list[str]:
        return list_files(self._terms.directory, self._terms.flag)

    def _recall(self) -> str:
        """The last choice, if it is still one."""
        with suppress(OSError):
            name = files.read_text(self._terms.remembered, NAME_MAX_BYTES).strip()
            if name in self._available():
                return name
        return ""

    def _remember(self) -> None:
        """Beside the sockets. Where that cannot be written, a start waits for the API server."""
        place = Path(self._terms.remembered)
        beside = place.with_name(f"{place.name}.new")
        with suppress(OSError):
            beside.unlink(missing_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            with os.fdopen(os.open(beside, flags, 0o600), "w") as file:
                file.write(self._name or "")
            beside.replace(place)

    @asynccontextmanager
    async def _watching(self) -> AsyncIterator[NodeWatch]:
        """Ends with the error of the watch, if that ends: a choice that follows nothing would look as if it did."""
        client = self._open_client()
        watch = NodeWatch(client, self._terms.node)
        try:
            async with asyncio.TaskGroup() as tasks:
                task = tasks.create_task(_never_ending(watch), name="watch of the node")
                yield watch
                task.cancel()
        except BaseExceptionGroup as error:
            raise first_cause(error) from None
        finally:
            await client.close()


async def _never_ending(watch: NodeWatch) -> None:
    await watch.run()
    raise Ended("the watch of the node has ended by itself")

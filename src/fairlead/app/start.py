"""The start of a daemon, in its order: from `fairlead run`, or a dialect's command, to "registered".

    prepare      SIGHUP waits, the collector is off, asyncio and msgspec are loaded
    (the command parses its flags, without click, and reads the configuration)
    run          builds the journal and the Daemon
    serve        an event loop; on it the watchdog's thread, the service manager and the signals
    Daemon.run   the backends, the directory lock, the status socket, the first scan, the resources
    on_scanning  while the backends scan, what errors and questions need is loaded
    Endpoint     binds its socket and registers with the kubelet; there is one for each resource
    on_ready     the service manager hears READY=1; a moment later the collector is on

Knows no devices. This module itself imports nothing but what `prepare` needs: every millisecond before "registered" is
one in which a node that boots has no devices.
"""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairlead.app.daemon import Daemon
    from fairlead.app.reload import ConfigWatch
    from fairlead.config.load import Loaded
    from fairlead.observe.journalfile import JournalFile

# asyncio takes ssl along: 2 MB and 10 ms, for a daemon on unix sockets; what speaks TLS here imports it by itself.
# msgspec takes typing_extensions, which other packages may have brought. Both libraries do without.
NOT_NEEDED = ("ssl", "typing_extensions")

# Used later, by a command's question or by an error. A module is a file: a process that has no descriptor left could
# not load one, and an error that cannot be reported ends the daemon.
LATER = (
    "concurrent.futures.thread",  # asyncio loads it with the first call on a thread
    "difflib",
    "encodings.idna",  # names of hosts
    "fairlead.engine.nothing",
    "fairlead.engine.overlap",
    "fairlead.fronts.checkpoint",
    "fairlead.wire.podresources",
    "fairlead.wire.pluginregistration",
    "linecache",
    "msgspec.inspect",  # errors of options
    "traceback",
)
LATER_WITH_CLUSTER = ("fairlead.cluster.kubeconfig", "fairlead.cluster.tls")
# Registering comes before a collection; a kubelet asks for its first device no sooner than this.
SETTLED_AFTER_S = 0.1
STRAY_S = 1.0


def prepare() -> None:
    """Before anything else is imported."""
    # A SIGHUP may come before the daemon listens. It waits until then, and does not end the process.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    gc.disable()  # nothing made during the start is garbage; see `settle_memory`
    load_libraries()


def load_libraries() -> None:
    """Loads asyncio and msgspec without what they would take along, and a daemon never uses."""
    # A Ctrl-C waits for the end of this: raised inside the start of an extension module it can crash the interpreter.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    masked = [name for name in NOT_NEEDED if name not in sys.modules]
    for name in masked:
        sys.modules[name] = None  # type: ignore[assignment]  # the documented way to make an import fail
    try:
        import_module("asyncio")
        import_module("msgspec")
    finally:
        for name in masked:
            del sys.modules[name]
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def run(loaded: Loaded, reload: Callable[[], Loaded], description: str, watch: ConfigWatch | None = None) -> None:
    """Runs a daemon to its end. `description`: its command line, without secrets, for those who meet its lock.

    `watch`: on its configuration, where that is not one file.
    """
    from fairlead.app.daemon import Daemon  # noqa: PLC0415 - this module is loaded before the libraries
    from fairlead.config.spec import LogFormat  # noqa: PLC0415 - as above
    from fairlead.kit.clock import SystemClock  # noqa: PLC0415 - as above
    from fairlead.observe.journal import Journal, json_line, text_line, to_stderr  # noqa: PLC0415 - as above

    clock = SystemClock()
    form = json_line if loaded.config.log.format is LogFormat.JSON else text_line
    disk = journal_on_disk(loaded)
    journal = Journal(clock, to_stderr(form), disk=disk)
    try:
        serve(Daemon(loaded, reload=reload, watch=watch, clock=clock, journal=journal, description=description))
    finally:
        if disk is not None:
            disk.close()


def journal_on_disk(loaded: Loaded) -> JournalFile | None:
    """Where its directory exists. Daemons of one node have names of their own: those of their sockets."""
    from pathlib import Path  # noqa: PLC0415 - as above

    config = loaded.config
    if not config.log.directory or not Path(config.log.directory).is_dir():
        return None
    from fairlead.observe.journalfile import SUFFIX, JournalFile  # noqa: PLC0415 - not every node has a place for it

    return JournalFile(Path(config.log.directory) / f"{Path(config.status.socket).stem or config.instance}{SUFFIX}")


def serve(daemon: Daemon) -> None:
    """Runs it to its end, as the one daemon of this process."""
    import asyncio  # noqa: PLC0415 - as above

    asyncio.run(_serve(daemon))


async def _serve(daemon: Daemon) -> None:
    import asyncio  # noqa: PLC0415 - as above

    from fairlead.app.signals import Signals  # noqa: PLC0415 - as above
    from fairlead.app.watchdog import REST_S, Watchdog  # noqa: PLC0415 - as above
    from fairlead.config.settings import supervision  # noqa: PLC0415 - as above
    from fairlead.observe.notify import Notifier  # noqa: PLC0415 - as above

    loop = asyncio.get_running_loop()
    manager = supervision()
    notifier = Notifier(manager.socket)
    watchdog = Watchdog(
        daemon.loaded.config.watchdog.limit,
        daemon.journal,
        alive=lambda: notifier.tell("WATCHDOG=1") if manager.watchdog_s else None,
        alive_s=manager.watchdog_s / 2 or REST_S,
    )

    def on_ready() -> None:
        notifier.tell("READY=1")
        loop.call_later(SETTLED_AFTER_S, settle_memory)

    daemon.in_pod = manager.in_pod
    daemon.on_scanning = lambda: load_rest(list(later_for(daemon.loaded)))
    daemon.on_ready = on_ready
    daemon.on_stopping = lambda: notifier.tell("STOPPING=1")
    watchdog.start()
    try:
        with Signals(daemon.stop, partial(daemon.reload, fresh=True), watchdog.signalled):
            await daemon.run()
    finally:
        watchdog.stop()
        notifier.close()
        await leave_stray_tasks()


async def leave_stray_tasks() -> None:
    """Tasks of a backend that do not end when they are cancelled: the end of a loop would wait for them for ever."""
    import asyncio  # noqa: PLC0415 - as above

    stray = asyncio.all_tasks() - {asyncio.current_task()}
    for task in stray:
        task.cancel()
    for left in (await asyncio.wait(stray, timeout=STRAY_S))[1] if stray else ():
        asyncio.tasks._unregister_task(left)  # noqa: SLF001 - documented, for those who run tasks themselves
        left._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001 - as asyncio does where it must


def later_for(loaded: Loaded) -> Iterator[str]:
    """What only some configurations need."""
    from fairlead.config.load import needs_cluster  # noqa: PLC0415 - as above
    from fairlead.model.resource import Strategy  # noqa: PLC0415 - as above

    if needs_cluster(loaded.config):
        yield from LATER_WITH_CLUSTER
    if any(part.terms.strategy is Strategy.CLOSEST for rule in loaded.rules for part in (rule, *rule.also)):
        yield "fairlead.policy.placement.closest"


def load_rest(more: Sequence[str] = ()) -> None:
    """What errors, questions and the first Allocate need: before any client can take the descriptors for it."""
    from fairlead.engine.allocator import placement  # noqa: PLC0415 - as above

    for name in (*LATER, *more):
        import_module(name)
    placement()


def settle_memory() -> None:
    # What is there now stays: later collections need not walk it, inside an Allocate least of all. Once: what a reload
    # brings goes with the next one, and must not be kept from the collector.
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()
    gc.enable()

"""A daemon as a process of its own: watched, and in touch with a service manager. Ends when the daemon does."""

from __future__ import annotations

import asyncio

from fairlead.app.daemon import Daemon
from fairlead.app.watchdog import REST_S, Watchdog
from fairlead.config.settings import supervision
from fairlead.observe.notify import Notifier


def run_daemon(daemon: Daemon) -> None:
    """Runs it to its end on a loop of its own."""
    asyncio.run(_run(daemon))


async def _run(daemon: Daemon) -> None:
    manager = supervision()
    notifier = Notifier(manager.socket)
    watchdog = Watchdog(
        daemon.loaded.config.watchdog.limit,
        daemon.journal,
        alive=lambda: notifier.tell("WATCHDOG=1") if manager.watchdog_s else None,
        alive_s=manager.watchdog_s / 2 or REST_S,
    )
    daemon.on_signal = watchdog.signalled
    daemon.on_ready = lambda: notifier.tell("READY=1")
    daemon.on_stopping = lambda: notifier.tell("STOPPING=1")
    watchdog.start()
    try:
        await daemon.run()
    finally:
        watchdog.stop()
        notifier.close()

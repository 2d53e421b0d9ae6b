"""A plugin served by the library, in the test's own process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import fairlead
from fairlead.app.daemon import Daemon
from fairlead.kit.clock import SystemClock
from fairlead.library import make_daemon
from fairlead.observe.journal import Fact, Journal
from fairlead.testing import Kubelet


@asynccontextmanager
async def serving(kubelet: Kubelet, *plugins: fairlead.Plugin) -> AsyncIterator[tuple[Daemon, list[Fact]]]:
    facts: list[Fact] = []
    daemon = make_daemon(plugins, plugin_dir=str(kubelet.plugin_dir), journal=Journal(SystemClock(), facts.extend))
    task = asyncio.create_task(daemon.run())
    try:
        yield daemon, facts
    finally:
        daemon.stop()
        await task

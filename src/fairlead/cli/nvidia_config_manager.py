"""`fairlead nvidia config-manager`: NVIDIA's config-manager, drop-in."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Sequence

from fairlead.cli.say import say
from fairlead.cluster.access import find_access
from fairlead.cluster.client import Client
from fairlead.cluster.nodes import NodeWatch
from fairlead.config.settings import environment
from fairlead.kit.clock import SystemClock
from fairlead.model.errors import FairleadError
from fairlead.programs.configmanager import Settings, read_settings, run

FAILED = 1


def main(args: Sequence[str]) -> int:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})  # it ends this program, as most
    try:
        settings = read_settings(args, environment())
        if isinstance(settings, str):
            sys.stdout.write(settings)
            return 0
        asyncio.run(_run(settings))
    except FairleadError as error:
        _note(str(error))
        return FAILED
    except KeyboardInterrupt:
        return 130
    return 0


async def _run(settings: Settings) -> None:
    clock = SystemClock()
    client = Client(find_access(environment(), clock, kubeconfig=settings.kubeconfig), clock)
    watch = NodeWatch(client, settings.node_name)
    watching = asyncio.ensure_future(watch.run())
    work = asyncio.ensure_future(run(settings, watch.latest, clock, _note))
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, work.cancel)
    try:
        # The watch has no end. If it has one all the same, that must be seen: nothing would ever be chosen.
        await asyncio.wait({work, watching}, return_when=asyncio.FIRST_COMPLETED)
        if watching.done():
            watching.result()
        if not work.cancelled():
            work.result()
    finally:
        for task in (work, watching):
            task.cancel()
        await asyncio.gather(work, watching, return_exceptions=True)
        await client.close()


def _note(text: str) -> None:
    say(text, "fairlead nvidia config-manager")

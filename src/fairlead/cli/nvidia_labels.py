"""`fairlead nvidia labels`: gpu-feature-discovery, drop-in."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fairlead.cli.say import say
from fairlead.config.settings import environment
from fairlead.dialects.nvidia.labels import loop
from fairlead.dialects.nvidia.labels.outputs import FeatureOutput, NodeOutput, Output
from fairlead.model.clock import SystemClock
from fairlead.model.errors import FairleadError

if TYPE_CHECKING:
    from fairlead.cluster.client import Client

FAILED = 1


def main(args: Sequence[str]) -> int:
    try:
        settings = loop.read_settings(args, environment())
        if isinstance(settings, str):
            sys.stdout.write(settings)
            return 0
        asyncio.run(_run(args, settings))
    except FairleadError as error:
        _note(str(error))
        return FAILED
    except KeyboardInterrupt:
        return 130
    return 0


async def _run(args: Sequence[str], settings: loop.Settings) -> None:
    """Listens to signals from here to the end: one that comes between two rounds must not end us, nor be lost."""
    stop, again = asyncio.Event(), asyncio.Event()
    events = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT):
        events.add_signal_handler(number, stop.set)
    events.add_signal_handler(signal.SIGHUP, again.set)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
    while await _label(settings, stop, again):
        # SIGHUP: everything anew, the config file too. A bad one keeps what was.
        again.clear()
        try:
            fresh = loop.read_settings(args, environment())
        except FairleadError as error:
            _note(f"the settings stay as they were: {error}")
            continue
        assert not isinstance(fresh, str)
        settings = fresh


async def _label(settings: loop.Settings, stop: asyncio.Event, again: asyncio.Event) -> bool:
    """Whether to start again."""
    clock = SystemClock()
    output, client = _output(settings, clock)
    work = asyncio.ensure_future(loop.run(settings, output, clock, stop, _note))
    hang_up = asyncio.ensure_future(again.wait())
    try:
        await asyncio.wait({work, hang_up}, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            work.result()
        return not work.done()
    finally:
        for task in (work, hang_up):
            task.cancel()
        await asyncio.gather(work, hang_up, return_exceptions=True)
        if client is not None:
            await client.close()


def _output(settings: loop.Settings, clock: SystemClock) -> tuple[Output, Client | None]:
    if not settings.use_node_feature_api and not settings.to_node:
        return loop.file_output(settings), None
    from fairlead.cluster.access import find_access  # noqa: PLC0415 - loads TLS; a file needs it not
    from fairlead.cluster.client import Client as Caller  # noqa: PLC0415 - as above

    client = Caller(find_access(environment(), clock, kubeconfig=settings.kubeconfig), clock)
    output: Output
    if settings.to_node:
        output = NodeOutput(client, settings.node_name)
    else:
        output = FeatureOutput(client, settings.node_name, settings.namespace, settings.pod_name, _note)
    return output, client


def _note(text: str) -> None:
    say(text, "fairlead nvidia labels")

"""`fairlead nvidia labels`: gpu-feature-discovery, drop-in."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

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
        while asyncio.run(_run(settings)):
            # SIGHUP: everything anew, the config file too. A bad one keeps what was.
            try:
                fresh = loop.read_settings(args, environment())
            except FairleadError as error:
                _note(f"the settings stay as they were: {error}")
                continue
            assert not isinstance(fresh, str)
            settings = fresh
    except FairleadError as error:
        _note(str(error))
        return FAILED
    except KeyboardInterrupt:
        return 130
    return 0


async def _run(settings: loop.Settings) -> bool:
    """Whether to start again."""
    clock = SystemClock()
    stop, again = asyncio.Event(), asyncio.Event()

    def hang_up() -> None:
        again.set()
        task.cancel()

    events = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT):
        events.add_signal_handler(number, stop.set)
    output, client = _output(settings, clock)
    task = asyncio.ensure_future(loop.run(settings, output, clock, stop, _note))
    events.add_signal_handler(signal.SIGHUP, hang_up)
    try:
        await task
    except asyncio.CancelledError:
        if not again.is_set():
            raise
    finally:
        if client is not None:
            await client.close()
    return again.is_set()


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
    for line in text.splitlines():
        sys.stderr.write(f"fairlead nvidia labels: {line}\n")

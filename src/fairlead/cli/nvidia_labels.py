"""`fairlead nvidia labels`: gpu-feature-discovery, drop-in."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from fairlead.cli import labels
from fairlead.model.ports import Clock
from fairlead.programs.labels import loop
from fairlead.programs.labels.outputs import FeatureOutput, NodeOutput, Output
from fairlead.programs.labels.rounds import Note


def main(args: Sequence[str]) -> int:
    return labels.main("fairlead nvidia labels", args, loop.read_settings, _label)


async def _label(settings: loop.Settings, clock: Clock, stop: asyncio.Event, note: Note) -> None:
    if not settings.use_node_feature_api and not settings.to_node:
        await loop.run(settings, loop.file_output(settings), clock, stop, note)
        return
    async with labels.open_client(settings.kubeconfig, clock) as client:
        output: Output = NodeOutput(client, settings.node_name)
        if not settings.to_node:
            output = FeatureOutput(client, settings.node_name, settings.namespace, settings.pod_name, note)
        await loop.run(settings, output, clock, stop, note)

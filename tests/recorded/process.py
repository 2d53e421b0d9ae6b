"""Recordings that only a process can play: how it starts, what it does when it cannot, signals, how it ends."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import fairlead
from fairlead.observe.control import ask
from tests.recorded.outcome import Outcome, list_of, node_of, registered
from tests.recorded.stage import COMMANDS, PATIENCE_S, Stage, eventually
from tests.vectors.sharing import Case

# What it says of itself when it stays, and serves nobody yet.
WAITS = (" backoff ", " nothing-offered ")


def command(case: Case, stage: Stage, *more: str) -> list[str]:
    places = ["--plugin-dir", str(stage.plugins), "--status-socket", str(stage.status_socket)]
    ours = [*places, "--pod-resources", str(stage.pod_resources), *more]
    return [sys.executable, "-m", "fairlead", COMMANDS[case.peer], *stage.words(), *ours]


def environment(stage: Stage) -> dict[str, str]:
    source = Path(fairlead.__file__).parents[1]
    own = {"PATH": "/usr/bin", "HOME": str(stage.root), "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
    return {**own, **stage.env(), **stage.machine.env}


async def run(case: Case, stage: Stage, wanted: Outcome, *more: str) -> Outcome:
    """From its start to SIGTERM, or to the end that it makes itself."""
    end = stage.end
    await end.start(command(case, stage, *more), environment(stage))
    await end.until(lambda: end.exit_code is not None or _serves(stage) or any(word in end.log for word in WAITS))
    if case.inputs.kubelet_appears_after_s is not None:
        await end.serve()
        await end.until(lambda: _serves(stage))
    outcome: Outcome = {}
    if _serves(stage):
        outcome |= {f"list {key}": value for key, value in list_of(stage.stream.lists[0]).items()}
        assert stage.stream.options is not None
        outcome["asked for a preference"] = stage.stream.options.get_preferred_allocation_available
        outcome["called before a start"] = stage.stream.options.pre_start_required
    if end.exit_code is None:
        await eventually(lambda: _nodes("node ", stage) == _only("node ", wanted), PATIENCE_S)
    outcome |= _nodes("node ", stage)
    if case.outputs.alive is not None:
        outcome["runs on"] = end.exit_code is None
    if case.case.endswith("-sighup"):
        outcome["ends with SIGHUP"] = await _sighup(stage)
    outcome |= {"register": registered(case, end.registrations), "exit": await end.stop(), "files left": end.sockets()}
    return outcome | _nodes("after ", stage)


async def _sighup(stage: Stage) -> bool:
    """Whether that was its end. If not, it has read its settings again, and scanned."""
    end, before = stage.end, await _scanned_s(stage)
    end.signal(signal.SIGHUP)
    async with asyncio.timeout(PATIENCE_S):
        while end.exit_code is None and await _scanned_s(stage) == before:  # noqa: ASYNC110 - a scan calls nobody
            await asyncio.sleep(0.01)
    return end.exit_code is not None


async def _scanned_s(stage: Stage) -> float:
    status = await asyncio.to_thread(ask, stage.status_socket, {"ask": "status"})
    (backend,) = status["backends"]
    return float(backend["scanned_s"])


def _serves(stage: Stage) -> bool:
    return bool(stage.end.followed) and bool(stage.stream.lists)


def _nodes(place: str, stage: Stage) -> Outcome:
    outcome: Outcome = {}
    for node in stage.nodes().values():
        outcome |= node_of(place.strip(), node)
        if stage.case.outputs.final_node is not None and place == "node ":
            noted = node["metadata"].get("annotations") or {}
            outcome |= {f"node annotation {key}": value for key, value in noted.items()}
    return outcome


def _only(place: str, wanted: Outcome) -> Outcome:
    return {key: value for key, value in wanted.items() if key.startswith(place) and value is not None}

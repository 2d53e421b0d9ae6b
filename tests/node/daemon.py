"""Fairlead as a process on the node, in its mount namespace: started, signalled, steered, and read by its journal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.node.rig import house
from tests.node.rig.places import NODE
from tests.node.rig.steps import NodeFailedError, until

END_S = 10.0
# Faults pass quickly here: the real times are minutes, and tested with a clock of their own elsewhere.
HEALTH = {"probeInterval": "50ms", "hold": "50ms", "probation": "50ms", "cleanProbes": 1, "suspect": "60s"}


def sim(resource: str, count: int, *, fleet: dict[str, Any] | None = None, **rule: Any) -> dict[str, Any]:
    """A configuration with simulated devices dev-0, dev-1 and so on, without device files."""
    short = resource.partition("/")[2]
    group = {"count": count, "id": f"{short}-{{i}}", **(fleet or {})}
    return {
        "backends": [{"kind": "sim", "fleet": {"name": short, "devices": [group]}}],
        "rules": [{"resource": resource, **rule}],
        "health": HEALTH,
    }


class Fairlead:
    """One daemon. It may be started again after it has ended; the journal goes on."""

    def __init__(self, root: Path, config: dict[str, Any]) -> None:
        self.file = root / "fairlead.yaml"
        self.socket = root / "fairlead.sock"
        self.began = 0.0  # the last start
        self._log = root / "fairlead.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.configure(config)

    def configure(self, config: dict[str, Any]) -> None:
        beside = self.file.with_suffix(".new")
        beside.write_text(json.dumps({"status": {"socket": str(self.socket)}, "log": {"format": "json"}, **config}))
        beside.replace(self.file)

    def start(self) -> float:
        """Starts it, and answers when that was."""
        self.run("-m", "fairlead", "run", "--config", str(self.file))
        return self.began

    def run(self, *words: str, env: dict[str, str] | None = None) -> None:
        self.began = time.time()
        clean = {key: value for key, value in os.environ.items() if not key.startswith("FAIRLEAD_")}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                house.inside(sys.executable, *words),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**clean, **(env or {})},
                start_new_session=True,
            )

    def end(self, with_signal: signal.Signals = signal.SIGTERM) -> int | None:
        if self._process is None:
            return None
        process, self._process = self._process, None
        process.send_signal(with_signal)
        try:
            return process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise NodeFailedError(f"fairlead did not end within {END_S:.0f} s of {with_signal.name}") from None

    def send(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def wait_end(self) -> int:
        """Until it has ended by itself; its exit code."""
        assert self._process is not None
        code = self._process.wait(END_S * 3)
        self._process = None
        return code

    def order(self, *words: str) -> None:
        """`fairlead sim`: makes something happen to a simulated device."""
        command = [sys.executable, "-m", "fairlead", "sim", "--socket", str(self.socket), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise NodeFailedError(f"fairlead sim {' '.join(words)}: {done.stderr.strip()}")

    def facts(self, event: str = "", **keys: Any) -> list[dict[str, Any]]:
        found = []
        for line in self._log.read_text().splitlines() if self._log.exists() else ():
            fact = json.loads(line) if line.startswith("{") else {"event": "said", "text": line}
            if event in {"", fact["event"]} and all(fact.get(key) == value for key, value in keys.items()):
                found.append(fact)
        return found

    def wait_fact(self, event: str, after: float = 0.0, **keys: Any) -> float:
        """When the first such fact after a moment was written."""

        def times() -> list[float]:
            return [at for fact in self.facts(event, **keys) if (at := when(fact)) >= after]

        return until(times, f"fairlead says {event} {keys}", look_s=0.02)[0]


def run_node(kubeconfig: Path, *words: str) -> tuple[int, str, str]:
    """`fairlead node`, for this node."""
    env = {**os.environ, "KUBECONFIG": str(kubeconfig), "NODE_NAME": NODE}
    done = subprocess.run(
        [sys.executable, "-m", "fairlead", "node", *words], capture_output=True, text=True, check=False, env=env
    )
    return done.returncode, done.stdout, done.stderr


def when(fact: dict[str, Any]) -> float:
    return datetime.fromisoformat(fact["at"]).timestamp() if "at" in fact else 0.0

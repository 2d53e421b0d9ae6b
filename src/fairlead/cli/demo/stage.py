"""The stage: a directory, the embedded kubelet in this process, and the real daemon as a process of its own."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from fairlead.model.errors import FairleadError
from fairlead.observe.control import ask
from fairlead.observe.status import Status, decode
from fairlead.standin import Kubelet
from fairlead.standin.clock import running

PATIENCE_S = 10.0
RULES = {
    "nvidia.com/gpu": "{vendor: nvidia}",
    "amd.com/gpu": "{vendor: amd}",
    "example.com/device": "{}",
}
# Recovery in seconds, not minutes: a visitor wants to see it.
HEALTH = "{probeInterval: 100ms, cleanProbes: 2, hold: 500ms, probation: 700ms}"


class DemoFailed(FairleadError):
    """A step did not end as it must."""


class Stage:
    """Set up with `async with`; everything it started is gone afterwards."""

    def __init__(self, fleet: str, *, keep: bool = False, record: str = "") -> None:
        self.root = Path(tempfile.mkdtemp(prefix="fairlead-demo-", dir="/tmp"))  # short: sockets live in it
        self.kubelet = Kubelet(self.root / "k", seed=1, rate_limit=False)
        self.socket = self.root / "fairlead.sock"
        self.config = self.root / "fairlead.yaml"
        self.log = self.root / "daemon.log"
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.address = f"127.0.0.1:{free.getsockname()[1]}"  # of the page
        self._fleet = fleet
        self._keep = keep
        self._record = str(Path(record).resolve()) if record else ""
        self._daemon: asyncio.subprocess.Process | None = None
        self.config.write_text(self._config_text())

    def _config_text(self) -> str:
        is_file = "/" in self._fleet or self._fleet.endswith((".yaml", ".yml"))
        fleet = Path(self._fleet).resolve() if is_file else self._fleet
        rules = "".join(f"  - {{match: {match}, resource: {name}}}\n" for name, match in RULES.items())
        return (
            f"backends:\n  - {{kind: sim, fleet: {fleet}}}\nrules:\n{rules}"
            f"kubelet:\n  directory: {self.kubelet.plugin_dir}\n  podResources: {self.kubelet.podresources_socket}\n"
            f"status: {{socket: {self.socket}}}\nhttp: {{listen: '{self.address}'}}\nhealth: {HEALTH}\n"
            f"record: {{file: '{self._record}'}}\n"
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop_daemon()
        await self.kubelet.__aexit__(None, None, None)
        if not self._keep:
            shutil.rmtree(self.root, ignore_errors=True)

    async def start_daemon(self) -> None:
        with self.log.open("ab") as log:
            self._daemon = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "fairlead", "run", "--config", self.config),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={key: value for key, value in os.environ.items() if not key.startswith("FAIRLEAD_")},
                process_group=0,  # Ctrl-C is for us; we stop it in our own time
            )

    async def stop_daemon(self) -> int | None:
        """Its exit code, after SIGTERM."""
        daemon, self._daemon = self._daemon, None
        if daemon is None or daemon.returncode is not None:
            return daemon.returncode if daemon else None
        daemon.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await daemon.wait()
        except TimeoutError:
            daemon.kill()
            await daemon.wait()
            raise DemoFailed(f"the daemon did not stop within {PATIENCE_S:g} s of SIGTERM") from None

    async def ask(self, what: str, **keys: Any) -> Any:
        """The daemon's own socket, as `fairlead status` uses it."""
        return await asyncio.to_thread(ask, self.socket, {"ask": what, **keys})

    async def status(self) -> Status:
        return decode(await self.ask("status"), Status)

    async def until(self, what: str, condition: Callable[[], Any]) -> Any:
        """Waits for the kubelet to see something; says what was missing if it never does."""
        died = self._daemon.wait() if self._daemon else asyncio.Event().wait()
        try:
            async with running(self.kubelet.wait_for(condition, PATIENCE_S), died) as tasks:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                if tasks[0].done():
                    return tasks[0].result()
                raise DemoFailed(f"the daemon ended while waiting for: {what}")
        except TimeoutError:
            raise DemoFailed(f"gave up waiting for: {what}") from None

    def log_tail(self, lines: int = 12) -> str:
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        except OSError:
            return ""

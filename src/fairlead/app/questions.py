"""What may be asked of a running daemon on its own socket, and what may be ordered there.

An answer about thousands of slots is made on a thread, from what was true when it was asked for. Who gave an order is
in the journal.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairlead.app import report
from fairlead.app.holders import ask
from fairlead.kubelet.podresources import Holdings, Unknown
from fairlead.kubelet.unit import Shortage
from fairlead.model.errors import UsageError
from fairlead.model.names import DeviceId
from fairlead.model.ports import Steers
from fairlead.observe.control import Control
from fairlead.wire.rpc import Peer

if TYPE_CHECKING:
    from fairlead.app.daemon import Daemon

# A person waits: who holds what is left out, with the reason, when the kubelet does not say it soon.
HOLDERS_DEADLINE_S = 0.5
SILENT_S = 1.0  # a kubelet that gave no answer is not asked again for so long: others wait for their turn


class Questions:
    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._holders: Holdings | Unknown = Unknown("not read yet")
        self._silent_s = float("-inf")  # since when it gives no answer

    def control(self, path: Path) -> Control:
        handlers = {
            "status": self.status,
            "explain": self.explain,
            "journal": self.journal,
            "clear": self.clear,
            "steer": self.steer,
        }
        return Control(path, handlers, Shortage(self._daemon.journal.record, path))

    async def holders(self) -> Holdings | Unknown:
        """Who holds what, as far as it can be known soon. What the daemon knows is not lost over a late answer."""
        daemon = self._daemon
        if daemon.clock.monotonic() - self._silent_s < SILENT_S:
            return self._holders
        self._holders, kubelet = await ask(daemon.loaded.config.kubelet.pod_resources, HOLDERS_DEADLINE_S)
        if isinstance(self._holders, Holdings):
            daemon.holders.take(self._holders, kubelet)
        else:
            self._silent_s = daemon.clock.monotonic()
        return self._holders

    async def told(self) -> dict[str, Any]:
        """The status, for those in the same process."""
        return report.status(self._daemon, await self.holders())()

    async def status(self, _request: Mapping[str, Any], _peer: Peer) -> Callable[[], Any]:
        await self._daemon.knock()
        return report.status(self._daemon, await self.holders())

    async def explain(self, request: Mapping[str, Any], _peer: Peer) -> Callable[[], Any]:
        name, count = str(request.get("resource", "")), int(request.get("count", 1))
        return report.explain_live(self._daemon, name, count, await self.holders())

    async def journal(self, request: Mapping[str, Any], _peer: Peer) -> Any:
        facts = self._daemon.journal.tail(int(request.get("count", 100)), after=int(request.get("after", -1)))
        return [{"seq": fact.seq, "at_s": fact.at_s, "event": fact.kind, **fact.keys} for fact in facts]

    async def clear(self, request: Mapping[str, Any], peer: Peer) -> Any:
        daemon = self._daemon
        device = report.find_device(daemon.inventory, str(request.get("device", "")))
        code = str(request.get("code") or "") or None
        daemon.journal.record("ordered", order="clear", device=device.id, code=code, uid=peer.uid, pid=peer.pid)
        daemon.sources.speaking[device.backend].clear(DeviceId(device.id), code)
        daemon.settle()
        return report.device_line(daemon.inventory, device.id)

    async def steer(self, request: Mapping[str, Any], peer: Peer) -> Any:
        order = {key: value for key, value in request.items() if key != "ask"}
        daemon = self._daemon
        for source in daemon.sources.live.values():
            if isinstance(source.backend, Steers):
                told = " ".join(str(order[key]) for key in ("do", "device") if key in order)
                daemon.journal.record("ordered", order=told[:200], backend=source.name, uid=peer.uid, pid=peer.pid)
                return source.backend.steer(order)
        raise UsageError("no backend of this daemon takes orders. Only a simulated one does")


def itself() -> Peer:
    """For orders that the process gives to itself."""
    return Peer(os.getpid(), os.getuid())

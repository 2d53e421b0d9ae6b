"""What may be asked of a running daemon on its own socket, and what may be ordered there.

An answer about thousands of slots is made on a thread, from a snapshot. The journal names the process that gave an
order.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from fairlead.app.snapshot import take_snapshot
from fairlead.fronts.deviceplugin.endpoint import record_shortage
from fairlead.fronts.holders import ask
from fairlead.kit.decoding import did_you_mean
from fairlead.model.device import Device
from fairlead.model.errors import UsageError
from fairlead.model.health import Condition
from fairlead.model.holdings import Holdings, Unknown
from fairlead.model.inventory import Inventory
from fairlead.model.names import DeviceId
from fairlead.model.ports import Steers
from fairlead.observe.control import Control
from fairlead.observe.explanation import Explanation, explain, pick_resource
from fairlead.observe.journal import row_of
from fairlead.observe.status import DoctorSummary, Status, cordon_status, make_status
from fairlead.policy.audit import Report
from fairlead.policy.cleanup import FAILED_CODE as CLEANUP_FAILED
from fairlead.policy.cordon import make_cordon
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
        self.examination: DoctorSummary | None = None

    def control(self, path: Path) -> Control:
        handlers = {
            "status": self.status,
            "audit": self.audit,
            "examined": self.examined,
            "explain": self.explain,
            "journal": self.journal,
            "clear": self.clear,
            "cordon": self.cordon,
            "uncordon": self.uncordon,
            "cordons": self.cordons,
            "steer": self.steer,
        }
        return Control(path, handlers, partial(record_shortage, self._daemon.journal.record, path))

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

    async def status(self, _request: Mapping[str, Any], _peer: Peer) -> Callable[[], Status]:
        await self._daemon.knock()
        return partial(make_status, take_snapshot(self._daemon, await self.holders()))

    async def audit(self, _request: Mapping[str, Any], _peer: Peer) -> Report:
        return await self._daemon.audit().look()

    async def examined(self, request: Mapping[str, Any], _peer: Peer) -> str:
        """`fairlead doctor` leaves its summary: the status and the page show it."""
        try:
            self.examination = msgspec.convert({**request, "at_s": self._daemon.clock.now()}, DoctorSummary)
        except msgspec.ValidationError as error:
            raise UsageError(f"the summary of a look does not fit: {error}") from None
        self._daemon.journal.record("examined", found=str(self.examination))
        return str(self.examination)

    async def explain(self, request: Mapping[str, Any], _peer: Peer) -> Callable[[], Explanation]:
        name, count = str(request.get("resource", "")), int(request.get("count", 1))
        holdings = await self.holders()
        resource = pick_resource([each.resource for each in self._daemon.supervisor.endpoints.values()], name)
        cluster = self._daemon.cluster
        scheduled = cluster.explain(resource, count) if cluster is not None else None
        return partial(explain, resource, self._daemon.engine.conditions, count, holdings, scheduled)

    async def journal(self, request: Mapping[str, Any], _peer: Peer) -> Any:
        facts = self._daemon.journal.tail(int(request.get("count", 100)), after=int(request.get("after", -1)))
        return [row_of(fact) for fact in facts]

    async def clear(self, request: Mapping[str, Any], peer: Peer) -> Any:
        daemon = self._daemon
        device = find_device(daemon.engine.inventory, str(request.get("device", "")))
        code = str(request.get("code") or "") or None
        daemon.journal.record("ordered", order="clear", device=device.id, code=code, uid=peer.uid, pid=peer.pid)
        daemon.engine.sources.speaking[device.backend].clear(DeviceId(device.id), code)
        if daemon.engine.cleaner is not None and code in {None, CLEANUP_FAILED}:
            daemon.engine.cleaner.clear(DeviceId(device.id))
        daemon.settle()
        condition = daemon.engine.conditions.of(device.id)
        return f"{device.id} is {describe(condition)}"

    async def cordon(self, request: Mapping[str, Any], peer: Peer) -> Any:
        daemon, for_s = self._daemon, request.get("for_s")
        device = pick_device(_cordonable(daemon.engine.inventory), str(request.get("device", "")))
        cordon = make_cordon(
            device, str(request.get("reason") or ""), daemon.clock.now(), None if for_s is None else float(for_s)
        )
        unkept = await daemon.engine.cordons.add(cordon, uid=peer.uid, pid=peer.pid)
        return f"{device} is cordoned: {cordon}. Pods that hold it keep it" + (f"; {unkept}" if unkept else "")

    async def uncordon(self, request: Mapping[str, Any], peer: Peer) -> Any:
        daemon, text = self._daemon, str(request.get("device", ""))
        cordons, known = daemon.engine.cordons, _cordonable(daemon.engine.inventory)
        if not cordons.by_device:
            raise UsageError("no device is cordoned")
        device = pick_device({name: known.get(name, "") for name in cordons.by_device}, text, "cordoned device")
        unkept = await cordons.remove(device, uid=peer.uid, pid=peer.pid)
        daemon.settle()
        there = device in daemon.engine.inventory.by_id
        health = f", and is {describe(daemon.engine.conditions.of(device))}" if there else ""
        return f"{device} is no longer cordoned{health}" + (f"; {unkept}" if unkept else "")

    async def cordons(self, _request: Mapping[str, Any], _peer: Peer) -> Any:
        return [cordon_status(cordon) for cordon in self._daemon.engine.cordons.by_device.values()]

    async def steer(self, request: Mapping[str, Any], peer: Peer) -> Any:
        order = {key: value for key, value in request.items() if key != "ask"}
        daemon = self._daemon
        for source in daemon.engine.sources.live.values():
            if isinstance(source.backend, Steers):
                text = " ".join(str(order[key]) for key in ("do", "device") if key in order)
                daemon.journal.record("ordered", order=text[:200], backend=source.name, uid=peer.uid, pid=peer.pid)
                return source.backend.steer(order)
        raise UsageError("no backend of this daemon takes orders. Only a simulated one does")


def find_device(inventory: Inventory, text: str) -> Device:
    """A device by id, index, or the unique beginning of an id."""
    return inventory.by_id[pick_device({device.id: device.index for device in inventory.devices}, text)]


def pick_device(known: Mapping[DeviceId, str], text: str, noun: str = "device") -> DeviceId:
    """Of ids and their indices: one by id, index, or the unique beginning of an id."""
    exact = [device for device, index in known.items() if text and text in {device, index}]
    close = exact or [device for device in known if text and device.startswith(text)]
    if len(close) == 1:
        return close[0]
    if close:
        raise UsageError(f"{noun} {text!r} could be any of: {', '.join(close[:8])}")
    names = known.keys() | {index for index in known.values() if index}
    raise UsageError(f"no {noun} {text!r:.80}{did_you_mean(text, names)}")


def _cordonable(inventory: Inventory) -> Mapping[DeviceId, str]:
    """Devices with their indices, and the devices that some are partitions of: those need not be there themselves."""
    parents = {device.parent: device.index.partition(":")[0] for device in inventory.devices if device.parent}
    return parents | {device.id: device.index for device in inventory.devices}


def describe(condition: Condition) -> str:
    return condition.health.value + (f" ({condition.cause})" if condition.cause else "")


def itself() -> Peer:
    """For orders that the process gives to itself."""
    return Peer(os.getpid(), os.getuid())

"""The backend of AMD GPUs: the ports of the engine on what the kernel shows. All touching of files is the threads'.

One thread looks for devices, one asks how they are, one how busy: a GPU that does not answer holds up no scan, and the
metrics hold up no probe.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress

from msgspec.structs import replace

from fairlead.backends.amd.devices import make_findings
from fairlead.backends.amd.exporter import Exporter
from fairlead.backends.amd.health import Examiner, Verdict, cause_of
from fairlead.backends.amd.host import fingerprint, read_host
from fairlead.backends.amd.spec import Check, DeviceListStrategy, Options
from fairlead.kit.hostroot import HostRoot
from fairlead.kit.notices import Notices
from fairlead.kit.owner import Owner
from fairlead.kit.waiting import sleep_unless
from fairlead.model.device import Device, Usage
from fairlead.model.edits import Edits, Grant
from fairlead.model.errors import BackendError
from fairlead.model.health import Cause
from fairlead.model.inventory import Findings
from fairlead.model.names import DeviceId
from fairlead.model.ports import Clock, Sink

SETTLE_S = 0.2  # the nodes of a GPU are made one after the other
PROBE_S = 2.5  # for all GPUs together
CONFIRM_S = 0.5  # the kernel makes its compute nodes anew in a few milliseconds
PLUGIN = "amd-gpu-device-plugin"  # in annotations

_ANNOTATIONS, _CRI = DeviceListStrategy.CDI_ANNOTATIONS, DeviceListStrategy.CDI_CRI


class AmdBackend:
    name = "amd"

    def __init__(self, options: Options, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._owner, self._prober = Owner("amd", clock), Owner("amd health", clock)
        self._meter = Owner("amd use", clock)  # its thread starts with the first question
        self._root = HostRoot(options.host_root)
        self._examiner = Examiner(self._root, options.health, clock)
        self._exporter = Exporter(options.health.exporter) if Check.EXPORTER in options.health.checks else None
        self._facts: dict[str, str] = {}  # as last read
        self._lost: set[DeviceId] = set()  # devices that KFD did not show at the last look
        self._seen: frozenset[str] | None = None  # the fingerprint of the last scan that worked
        self._cdi = bool({_ANNOTATIONS, _CRI} & set(options.ways))
        dev = self._root.outside("/dev")
        self._directories = [dev, f"{dev}/dri", *([options.cdi.directory] if self._cdi else [])]
        self._spec = f"{options.cdi.directory}/{options.cdi.vendor}-gpu.json"

    # --- Devices --------------------------------------------------------------------------------------------------

    async def discover(self) -> Findings:
        deadline_s = self._options.deadline
        seen, found = await self._owner.call(self._scan, deadline_s=deadline_s, what="the look at all GPUs")
        self._seen = seen
        silent = self._exporter.problem if self._exporter else ""
        return replace(found, problems=(*found.problems, silent)) if silent else found

    def _scan(self) -> tuple[frozenset[str], Findings]:
        seen = fingerprint(self._root)  # before the rest: what changes meanwhile is another one
        found = make_findings(read_host(self._root, self._facts), self._options.dev_root.rstrip("/"))
        if self._cdi or self._has_spec():
            from fairlead.backends.amd import cdi  # noqa: PLC0415 - most nodes never need it

            cdi.publish(self._options, found.devices, wanted=self._cdi)
        return self._with_spec(seen), found

    def _look(self) -> frozenset[str]:
        return self._with_spec(fingerprint(self._root))

    def _with_spec(self, seen: frozenset[str]) -> frozenset[str]:
        """A spec that goes must be written again."""
        return seen | {"spec"} if self._cdi and self._has_spec() else seen

    def _has_spec(self) -> bool:
        return os.path.exists(self._spec)  # noqa: PTH110 - asked at each poll

    async def watch(self, sink: Sink) -> None:
        """Nodes that come or go give a notice; what changes in sysfs alone is found by a poll."""
        changed = asyncio.Event()
        asked: frozenset[str] | None = None
        with closing(Notices(changed.set)) as notices:
            while True:
                # Cleared and armed before looking: what changes in between stirs again.
                changed.clear()
                notices.arm(self._directories)
                with suppress(BackendError):  # the engine's own scans report it
                    seen = await self._owner.call(self._look, what="the look for changes")
                    if seen not in (self._seen, asked):
                        asked = seen
                        sink.rescan()
                if await sleep_unless(changed, self._clock, self._options.poll):
                    await self._clock.sleep(SETTLE_S)

    # --- Health ---------------------------------------------------------------------------------------------------

    async def probe_all(self, devices: Sequence[Device]) -> Mapping[DeviceId, Verdict]:
        if not self._options.health.checks:
            return dict.fromkeys((device.id for device in devices), None)
        if self._exporter is None:
            return await self._settled(devices)
        verdicts, _ = await asyncio.gather(self._settled(devices), self._exporter.ask())
        for device in devices:
            if not isinstance(verdicts[device.id], Cause) and self._exporter.says_unhealthy(device):
                verdicts[device.id] = cause_of("exporter")
        return verdicts

    async def _settled(self, devices: Sequence[Device]) -> dict[DeviceId, Verdict]:
        """A device that KFD has just lost is looked at again: the kernel takes all nodes away when one GPU is cut anew,
        and counts the generation up only when they are back.
        """
        verdicts = await self._examine(devices)
        lost = _lost(verdicts)
        if not lost <= self._lost:
            await self._clock.sleep(CONFIRM_S)
            verdicts = await self._examine(devices)
            lost = _lost(verdicts)
        self._lost = lost
        return verdicts

    async def _examine(self, devices: Sequence[Device]) -> dict[DeviceId, Verdict]:
        examine = self._examiner.examine
        try:
            return await self._prober.call(examine, devices, deadline_s=PROBE_S, what="the look at the GPUs' health")
        except BackendError as error:
            # A GPU that does not answer is known. Of the others there is no data, nor of those that are slow together.
            hangs = self._examiner.hanging(PROBE_S / 2)
            return {
                device.id: cause_of("no-answer", str(error)) if device.attributes["gpu"] == hangs else error
                for device in devices
            }

    # --- Use ------------------------------------------------------------------------------------------------------

    async def usage(self, devices: Sequence[Device]) -> Mapping[DeviceId, Usage]:
        """Of whole GPUs: of a partition the driver does not say it."""
        from fairlead.backends.amd.use import read_use  # noqa: PLC0415 - for metrics alone

        return await self._meter.call(read_use, self._root, devices, deadline_s=PROBE_S, what="the use of all GPUs")

    # --- Grants ---------------------------------------------------------------------------------------------------

    def edits(self, grant: Grant) -> Edits:
        ways = self._options.ways
        names: tuple[str, ...] = ()
        annotations: dict[str, str] = {}
        nodes = dict.fromkeys(node for device in grant.devices for node in device.nodes)
        if self._cdi:
            from fairlead.inject import cdi  # noqa: PLC0415 - most nodes have no CDI specs

            kind = f"{self._options.cdi.vendor}/gpu"
            names = tuple(cdi.qualify(kind, cdi.device_name(device.id)) for device in grant.devices)
            if _ANNOTATIONS in ways:
                key = cdi.annotation_key(PLUGIN, grant.resource, self._options.cdi.annotation_prefix)
                annotations[key] = ",".join(names)
        return Edits(
            nodes=tuple(nodes) if DeviceListStrategy.NODES in ways else (),
            annotations=annotations,
            cdi=names if _CRI in ways else (),
        )

    async def close(self) -> None:
        self._owner.close()
        self._prober.close()
        self._meter.close()


def _lost(verdicts: Mapping[DeviceId, Verdict]) -> set[DeviceId]:
    return {name for name, verdict in verdicts.items() if isinstance(verdict, Cause) and verdict.code == "kfd-gone"}

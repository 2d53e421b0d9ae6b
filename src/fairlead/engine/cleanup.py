"""The clean-up of devices between containers: which are used, when their command runs, and who waits for it.

`policy.cleanup` decides. Owns the commands that run, and one small file in which uses outlast the daemon. Knows no
kubelet: who holds what comes through a port.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

import msgspec
from msgspec import Struct

from fairlead.kit import files
from fairlead.kit.command import run_command
from fairlead.kit.owner import Owner
from fairlead.model.device import Device
from fairlead.model.edits import Grant
from fairlead.model.errors import BackendError, NotClean
from fairlead.model.health import Condition
from fairlead.model.names import DeviceId, ResourceName, SlotId
from fairlead.model.ports import Clock, Record
from fairlead.model.resource import Cleanup, Resource
from fairlead.policy import cleanup as policy
from fairlead.policy.cleanup import Held, Stage, Start, Use

LOOK_S = 10.0  # between two looks at who holds what, while a device is used
AT_ONCE = 4  # commands that run at the same time
FILE_MAX_BYTES = 2**20
DEVICES_MAX = 4_096
VERSION = 1
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

Holders = Callable[[], Awaitable[Mapping[ResourceName, frozenset[SlotId]] | None]]


class _Saved(Struct, frozen=True):
    version: int
    used: tuple[str, ...] = ()
    failed: Mapping[str, str] = {}  # by device, why


class Cleaner:
    """`resources`: those that are listed now. `on_change`: other devices are kept from pods than before."""

    def __init__(
        self,
        clock: Clock,
        record: Record,
        note: Callable[[str, str], None],
        holders: Holders,
        resources: Callable[[], Iterable[Resource]],
        on_change: Callable[[], None],
    ) -> None:
        self._clock, self._record, self._note = clock, record, note
        self._holders, self._resources, self._on_change = holders, resources, on_change
        self.uses: dict[DeviceId, Use] = {}
        self.conditions: Mapping[DeviceId, Condition] = {}
        self._running: dict[DeviceId, asyncio.Task[None]] = {}
        self._locks: dict[DeviceId, asyncio.Lock] = {}  # one container at a time starts on a device
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._due = asyncio.Event()
        self._path: Path | None = None
        self._thread: Owner | None = None

    # --- What happens -----------------------------------------------------------------------------------------------

    def granted(self, resource: Resource, grant: Grant) -> None:
        if resource.terms.cleanup is not None:
            for device, slots in _by_device(resource, grant.slots).items():
                self.uses[device] = policy.grant(self.uses.get(device, Use()), slots, self._clock.monotonic())
            self._due.set()

    async def prepare(self, resource: Resource, slots: Iterable[SlotId]) -> None:
        """Before a container starts. Raises NotClean while a device is not fit for it."""
        cleanup = resource.terms.cleanup
        if cleanup is None:
            return
        for device, mine in _by_device(resource, slots).items():
            async with self._locks.setdefault(device, asyncio.Lock()):
                await self._prepare(device, mine, cleanup, resource.name)

    async def _prepare(self, device: DeviceId, mine: list[Held], cleanup: Cleanup, resource: ResourceName) -> None:
        if (running := self._running.get(device)) is not None:
            await asyncio.shield(running)  # the caller may give up, and come again: it goes on
        use = self.uses.get(device, Use())
        held = await self._held(device) if use.pending else None
        self.uses[device], how = policy.start(use, mine, held, self._clock.monotonic())
        if how is Start.SHARED:
            self._record("cleanup-skipped", device=device, reason="another container holds a share of it")
        elif how is Start.CLEAN_FIRST and use.stage is not Stage.FAILED:
            await asyncio.shield(self._begin(device, cleanup, resource))
        if (use := self.uses[device]).stage is Stage.FAILED:
            raise NotClean(device, use.reason)
        self.uses[device] = policy.cleaned_for(use, mine, self._clock.monotonic()) if not use.granted else use

    def clear(self, device: DeviceId) -> bool:
        """An operator has looked. Whether there was something to clear."""
        use = self.uses.get(device)
        if use is None or use.stage is not Stage.FAILED:
            return False
        self.uses[device] = policy.clear(use)
        self._changed()
        self._due.set()
        return True

    async def run(self) -> None:
        """Cleans what its last container has left. Run it as a task."""
        while True:
            self._due.clear()
            if not any(use.stage is Stage.USED for use in self.uses.values()):
                await self._due.wait()
            await self._save()
            await self._clock.sleep(LOOK_S)
            await self._look()

    async def _look(self) -> None:
        held = await self._holders()
        unknown = held is None and any(use.stage is Stage.USED for use in self.uses.values())
        reason = (
            "it is not known who holds what: used devices are cleaned only right before their next container starts"
        )
        self._note("cleanup", reason if unknown else "")
        if held is None:
            return
        now_s = self._clock.monotonic()
        terms = {device: resource for resource in self._resources() for device in resource.slots_of}
        for device, resource in terms.items():
            if resource.terms.cleanup is None or device in self._running:
                continue
            mine = self._of(device, held)
            use = self.uses.get(device, Use())
            if mine and use.stage is Stage.CLEAN:  # granted by a daemon before this one
                self.uses[device] = policy.grant(use, mine, now_s)
            elif policy.is_due(use, mine, now_s):
                self._begin(device, resource.terms.cleanup, resource.name)

    def _begin(self, device: DeviceId, cleanup: Cleanup, resource: ResourceName) -> asyncio.Task[None]:
        work = self._clean(device, cleanup, resource)
        self._running[device] = task = asyncio.create_task(work, name=f"cleanup {device}")
        task.add_done_callback(lambda _done: self._running.pop(device, None))
        return task

    async def _clean(self, device: DeviceId, cleanup: Cleanup, resource: ResourceName) -> None:
        self.uses[device] = policy.begin(self.uses.get(device, Use()))
        self._changed()
        try:
            problem = await self._run(device, cleanup, resource)
        except asyncio.CancelledError:
            self.uses[device] = policy.break_off(self.uses[device])
            raise
        self.uses[device] = policy.end(self.uses[device], problem)
        if problem:
            self._record("cleanup-failed", device=device, reason=problem)
        else:
            self._record("cleaned", device=device)
        self._changed()
        self._due.set()

    async def _run(self, device: DeviceId, cleanup: Cleanup, resource: ResourceName) -> str:
        async with self._turns:
            known = (found for each in self._resources() for found in each.inventory.devices)
            found = next((each for each in known if each.id == device), None)
            if found is None:
                return "it is not there any more"
            return await run_command(_words(cleanup, found), _env(found, resource), cleanup.deadline_s)

    # --- Who holds it -----------------------------------------------------------------------------------------------

    async def _held(self, device: DeviceId) -> frozenset[Held] | None:
        held = await self._holders()
        return None if held is None else self._of(device, held)

    def _of(self, device: DeviceId, held: Mapping[ResourceName, frozenset[SlotId]]) -> frozenset[Held]:
        return frozenset(
            (resource.name, slot.id)
            for resource in self._resources()
            for slot in resource.slots_of.get(device, ())
            if slot.id in held.get(resource.name, frozenset())
        )

    def _changed(self) -> None:
        now_s = self._clock.monotonic()
        found = {device: policy.condition_of(use, now_s) for device, use in self.uses.items()}
        conditions = {device: condition for device, condition in found.items() if condition is not None}
        if conditions.keys() != self.conditions.keys() or any(
            conditions[device].cause != known.cause for device, known in self.conditions.items()
        ):
            self.conditions = conditions
            self._on_change()

    # --- Kept over restarts -----------------------------------------------------------------------------------------

    def open(self, path: Path) -> None:
        """What an earlier daemon left: used devices are cleaned, and those that could not be wait for an operator."""
        self._path = path
        problem = ""
        try:
            saved = _decode(files.read_own(path, FILE_MAX_BYTES))
            self.uses = {DeviceId(device): Use(Stage.USED) for device in saved.used}
            self.uses |= {DeviceId(device): Use(Stage.FAILED, reason=why) for device, why in saved.failed.items()}
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as error:
            why = error.strerror or str(error) if isinstance(error, OSError) else str(error)
            problem = f"{path}: {why}. Devices that were used before this start are not cleaned for that"
        self._note("cleanup-file", problem)
        self._changed()
        self._due.set()

    async def close(self) -> None:
        for task in tuple(self._running.values()):
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)
        await self._save()
        if self._thread is not None:
            self._thread.close()

    async def _save(self) -> None:
        if self._path is None:
            return
        used = [device for device, use in self.uses.items() if use.stage in {Stage.USED, Stage.CLEANING}]
        failed = {device: use.reason for device, use in self.uses.items() if use.stage is Stage.FAILED}
        content = msgspec.json.encode(_Saved(VERSION, tuple(used[:DEVICES_MAX]), failed))
        self._thread = self._thread or Owner("cleanup", self._clock)
        try:
            write = partial(files.replace, self._path, content, 0o600, sync=True)
            await self._thread.call(write, what=f"writing {self._path}")
            problem = ""
        except OSError as error:
            problem = f"{self._path}: {error.strerror or error}"
        except BackendError as error:
            problem = str(error)
        self._note("cleanup-file", f"which devices were used is not on the disk: {problem}" if problem else "")


def _by_device(resource: Resource, slots: Iterable[SlotId]) -> dict[DeviceId, list[Held]]:
    found: dict[DeviceId, list[Held]] = {}
    for slot in slots:
        if (known := resource.by_id.get(slot)) is not None:
            found.setdefault(known.device, []).append((resource.name, slot))
    return found


def _words(cleanup: Cleanup, device: Device) -> list[str]:
    program, *rest = cleanup.command
    fields = {"{id}": device.id, "{index}": device.index, "{pci}": device.pci_address}
    for name, value in fields.items():
        rest = [word.replace(name, value) for word in rest]
    return [program, *rest]


def _env(device: Device, resource: ResourceName) -> dict[str, str]:
    return {
        "PATH": PATH,
        "FAIRLEAD_DEVICE": device.id,
        "FAIRLEAD_DEVICE_INDEX": device.index,
        "FAIRLEAD_DEVICE_PCI": device.pci_address,
        "FAIRLEAD_DEVICE_NODES": ":".join(node.path for node in device.nodes),
        "FAIRLEAD_RESOURCE": resource,
    }


def _decode(content: bytes) -> _Saved:
    try:
        saved = msgspec.json.decode(content, type=_Saved)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise ValueError("it holds something else than devices that were used") from None
    if saved.version != VERSION or len(saved.used) + len(saved.failed) > DEVICES_MAX:
        raise ValueError("its version or its size is not known")
    return saved

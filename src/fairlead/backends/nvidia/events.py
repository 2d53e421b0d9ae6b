"""Events of the driver: an event set on all GPUs, and the wait for the next. Blocking: runs on a thread of its own.

Holds a session of its own, so that a wait never depends on one that another thread ends. NVML keeps events that come
while no thread waits, as long as the set is open.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress

from msgspec import Struct

from fairlead.backends.nvidia.errors import NvmlError
from fairlead.backends.nvidia.nvml import (
    DOUBLE_BIT,
    GPU_IS_LOST,
    NOT_SUPPORTED,
    UNAVAILABLE,
    XID,
    EventSet,
    Handle,
    Nvml,
)

WANTED = XID | DOUBLE_BIT | UNAVAILABLE
_AT_ONCE = 256  # a storm is reported in parts
# The loop has a fault to report to the kubelet. Two threads that want the interpreter would wait for each other.
_BREATH_S = 0.002


class GpuEvent(Struct, frozen=True):
    """Something befell a GPU, or one instance of it."""

    gpu: str  # its UUID; empty where the driver does not say whose event it is
    kind: int
    data: int  # the XID
    gi: int | None = None
    ci: int | None = None


class Events:
    def __init__(self, rest: Callable[[float], None] = time.sleep) -> None:
        self._rest = rest
        self._nvml: Nvml | None = None
        self._set: EventSet | None = None
        self._uuids: dict[Handle, str] = {}
        self.waiting = False  # the thread is in a wait
        self.ending = False  # set by the loop: the thread lets go of everything when it next can

    def open(self, nvml: Nvml, uuids: Iterable[str]) -> tuple[str, ...]:
        """Listens to these GPUs, and says which cannot be listened to. NvmlError where none can."""
        self.close()  # one that could not be closed in its time
        nvml.init()
        self._nvml = nvml
        try:
            self._set = nvml.event_set()
        except NvmlError:
            self.close()
            raise
        return self.add(uuids)

    def add(self, uuids: Iterable[str]) -> tuple[str, ...]:
        """To these as well. Says which cannot be listened to."""
        nvml, events = self._nvml, self._set
        if nvml is None or events is None:
            return ()
        problems = []
        for uuid in uuids:
            try:
                handle = nvml.handle_by_uuid(uuid)
                kinds = nvml.supported_events(handle) & WANTED
                if kinds:
                    nvml.register_events(handle, kinds, events)
                    self._uuids[handle] = uuid
                if not kinds & XID:
                    problems.append(f"{uuid}: its driver reports no XIDs; only probes tell of its faults")
            except NvmlError as error:
                why = "is too old for events" if error.code == NOT_SUPPORTED else f"cannot be listened to: {error}"
                problems.append(f"{uuid}: {why}; only probes tell of its faults")
        return tuple(problems)

    def wait(self, timeout_s: float, report: Callable[[GpuEvent], None], go_on: Callable[[], bool]) -> None:
        """Reports each event as soon as it is known. NvmlError when the set is of no more use.

        Asks after each wait whether to go on: one that ends without an event costs the loop nothing.
        """
        self.waiting = True
        try:
            while self._nvml is not None and self._set is not None and not self.ending:
                event = self._nvml.wait(self._set, int(timeout_s * 1000))
                reported = 0
                while event is not None:
                    uuid = self._uuids.get(event.device, "")
                    report(GpuEvent(uuid, event.kind, event.data, event.gi, event.ci))
                    if not uuid:  # the event names no GPU: all are probed, as when the wait reports a lost one
                        raise NvmlError("nvmlEventSetWait", GPU_IS_LOST, f"event {event.data} names no GPU of ours")
                    if not reported:
                        self._rest(_BREATH_S)
                    reported += 1
                    event = self._nvml.wait(self._set, 0) if reported < _AT_ONCE else None
                if not go_on():
                    return
        finally:
            self.waiting = False
            if self.ending:
                self.close()

    def close(self) -> None:
        nvml, events = self._nvml, self._set
        self._nvml, self._set, self._uuids = None, None, {}
        if nvml is not None:
            with suppress(NvmlError):
                if events is not None:
                    nvml.free_events(events)
            with suppress(NvmlError):
                nvml.shutdown()

"""The event set: what is heard, in which order, and what is let go."""

from __future__ import annotations

from typing import cast

import pytest

from fairlead.backends.nvidia.errors import NvmlError
from fairlead.backends.nvidia.events import Events, GpuEvent
from fairlead.backends.nvidia.nvml import GPU_IS_LOST, XID, Event, EventSet, Handle, Nvml


class Scripted:
    """An NVML whose waits are given; None: nothing happened in time."""

    def __init__(self, *waits: Event | NvmlError | None) -> None:
        self.waits = list(waits)
        self.sessions = 0
        self.sets = 0

    def init(self) -> None:
        self.sessions += 1

    def shutdown(self) -> None:
        self.sessions -= 1

    def event_set(self) -> EventSet:
        self.sets += 1
        return EventSet(1)

    def free_events(self, events: EventSet) -> None:
        self.sets -= int(events)

    def handle_by_uuid(self, uuid: str) -> Handle:
        return Handle(int(uuid[-1]))

    def supported_events(self, device: Handle) -> int:
        return XID if device else 0

    def register_events(self, device: Handle, kinds: int, events: EventSet) -> None:
        assert (device, kinds, events) == (device, XID, 1)

    def wait(self, events: EventSet, timeout_ms: int) -> Event | None:
        found = self.waits.pop(0) if self.waits else None
        if isinstance(found, NvmlError):
            raise found
        return found


def xid(device: int, number: int) -> Event:
    return Event(Handle(device), XID, number, None, None)


def lost() -> NvmlError:
    return NvmlError("nvmlEventSetWait_v2", GPU_IS_LOST, "GPU is lost")


def listening(nvml: Scripted) -> Events:
    events = Events()
    assert events.open(cast("Nvml", nvml), ["GPU-1", "GPU-2"]) == ()
    return events


def once() -> bool:
    return False


def test_waits_follow_each_other_until_somebody_wants_the_thread() -> None:
    events = listening(Scripted(None, xid(1, 48), None, None, xid(2, 79)))
    heard: list[GpuEvent] = []
    asked: list[int] = []

    def go_on() -> bool:
        asked.append(len(heard))
        return len(asked) < 3

    events.wait(5, heard.append, go_on)
    assert heard == [GpuEvent("GPU-1", XID, 48)]
    assert asked == [0, 1, 1]


def test_a_wait_that_goes_on_ends_with_the_plugin() -> None:
    nvml = Scripted()
    events = listening(nvml)

    def go_on() -> bool:
        events.ending = True
        return True

    events.wait(5, lambda _: None, go_on)
    assert (nvml.sessions, nvml.sets, events.waiting) == (0, 0, False)


def test_what_happened_at_once_is_told_in_one_wait() -> None:
    events = listening(Scripted(xid(1, 48), xid(2, 79), None))
    heard: list[GpuEvent] = []
    events.wait(5, heard.append, once)
    assert heard == [GpuEvent("GPU-1", XID, 48), GpuEvent("GPU-2", XID, 79)]
    events.wait(5, heard.append, once)
    assert len(heard) == 2


def test_an_event_of_nobody_that_is_known_is_an_error_and_those_around_it_are_told() -> None:
    events = listening(Scripted(xid(1, 48), xid(9, 79), xid(2, 79), None))
    heard: list[GpuEvent] = []
    with pytest.raises(NvmlError, match="event 79 names no GPU of ours"):
        events.wait(5, heard.append, once)
    events.wait(5, heard.append, once)
    assert heard == [GpuEvent("GPU-1", XID, 48), GpuEvent("", XID, 79), GpuEvent("GPU-2", XID, 79)]


def test_an_event_is_told_before_the_driver_is_asked_for_the_next() -> None:
    nvml = Scripted(xid(1, 48), xid(2, 79), None)
    left: list[int] = []
    listening(nvml).wait(5, lambda _: left.append(len(nvml.waits)), once)
    assert left == [2, 1]


def test_an_error_behind_an_event_is_told_after_it() -> None:
    events = listening(Scripted(xid(1, 79), lost()))
    heard: list[GpuEvent] = []
    with pytest.raises(NvmlError, match="GPU is lost"):
        events.wait(5, heard.append, once)
    assert heard == [GpuEvent("GPU-1", XID, 79)]
    events.wait(5, heard.append, once)
    assert len(heard) == 1


def test_everything_is_let_go_at_the_end_of_a_wait() -> None:
    nvml = Scripted()
    events = listening(nvml)
    assert (nvml.sessions, nvml.sets) == (1, 1)
    events.ending = True
    events.wait(5, lambda _: None, once)
    assert (nvml.sessions, nvml.sets) == (0, 0)
    events.close()
    assert (nvml.sessions, nvml.sets) == (0, 0)


def test_a_gpu_without_events_is_named_and_the_others_are_heard() -> None:
    events = Events()
    problems = events.open(cast("Nvml", Scripted()), ["GPU-0", "GPU-1"])
    assert problems == ("GPU-0: its driver reports no XIDs; only probes tell of its faults",)

"""Says in which points two results differ, one line each. Order counts only where the original has one.

Must not know which program gave which result, nor which differences are intended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from tests.vectors import Allocation, Frames, Preference, Resource, Result

LONG = 300


def differences(recorded: Result, seen: Result) -> list[str]:
    return list(_differences(recorded, seen))


def _differences(a: Result, b: Result) -> Iterator[str]:
    for name in ("state", "exit_code", "stopped_by", "sockets", "sockets_after_stop", "crashes", "effective_config"):
        yield from _same(name, getattr(a, name), getattr(b, name))
    yield from _same("registrations", _by_name(a), _by_name(b))
    yield from _same("resources", sorted(_served(a)), sorted(b.resources))
    for name in sorted(_served(a).keys() & b.resources.keys()):
        for line in _resource(a.resources[name], b.resources[name]):
            yield f"{name}: {line}"
    yield from _same("CDI files", sorted(a.cdi_specs), sorted(b.cdi_specs))
    for path in a.cdi_specs.keys() & b.cdi_specs.keys():
        yield from _same(path, a.cdi_specs[path], b.cdi_specs[path])
    for left, right in zip(a.actions or (), b.actions or (), strict=False):
        for key in ("registrations", "sockets", "exit_code"):
            yield from _same(f"after {left['action']}: {key}", _sorted(left[key]), _sorted(right[key]))
        yield from _same(f"after {left['action']}: devices", left.get("devices", {}), right["devices"])


def _resource(a: Resource, b: Resource) -> Iterator[str]:
    yield from _same("options", a.options, b.options)
    yield from _same("devices", a.devices, b.devices)
    for number, (one, other) in enumerate(zip(a.preferred or (), b.preferred or (), strict=False)):
        if not same_preference(one, other):
            yield from _same(f"preferred {number} {_short(one.request)}", _answer(one), _answer(other))
    for number, (left, right) in enumerate(zip(a.allocate or (), b.allocate or (), strict=False)):
        if not same_allocation(left, right):
            yield from _same(f"allocate {number} {_short(left.request)}", _answer(left), _answer(right))
    for before, after in zip(a.frames_after_event or (), b.frames_after_event or (), strict=False):
        if not same_frames(before, after):
            yield from _same(f"lists after {before.event}", before.frames, after.frames)


def same_preference(a: Preference, b: Preference) -> bool:
    """Replicas and MIG devices: ties are broken at random, so how many of each GPU is what is compared."""
    if a.crash or b.crash:
        return bool(a.crash) == bool(b.crash)
    if a.response is None or b.response is None:
        return a.error == b.error
    if a.response == b.response:
        return True
    if not any("::" in slot or slot.startswith("MIG-") for it in a.request for slot in it.available):
        return False
    for wanted, one, other in zip(a.request, a.response, b.response, strict=True):
        must = len(wanted.must_include)
        if one[:must] != other[:must] or _shares(one) != _shares(other):
            return False
    return True


def same_allocation(a: Allocation, b: Allocation) -> bool:
    if a.response is None or b.response is None:
        return a.error == b.error
    return [_plain(it) for it in a.response] == [_plain(it) for it in b.response]


def same_frames(a: Frames, b: Frames) -> bool:
    """Which device of a GPU turns unhealthy first is random: compared is how many did, in each list."""
    if a.frames == b.frames:
        return True
    return [_health(it) for it in a.frames] == [_health(it) for it in b.frames]


def _health(devices: list[dict[str, Any]]) -> dict[str, int]:
    return Counter(device["health"] for device in devices)


def _shares(slots: list[str]) -> list[int]:
    return sorted(Counter(slot.partition("::")[0] for slot in slots).values())


def _plain(container: dict[str, Any]) -> dict[str, Any]:
    """Without the order that a Go map gave it."""
    listed = {key: sorted(map(str, container[key])) for key in ("mounts", "devices", "cdi_devices")}
    words = {
        key: {name: sorted(text.split(",")) for name, text in container[key].items()} for key in ("envs", "annotations")
    }
    return listed | words


def _served(result: Result) -> dict[str, Resource]:
    return {name: it for name, it in result.resources.items() if it.devices is not None}


def _by_name(result: Result) -> list[str]:
    return sorted(str(it) for it in result.registrations)


def _sorted(value: Any) -> Any:
    return sorted(value, key=str) if isinstance(value, list) else value


def _answer(call: Preference | Allocation) -> Any:
    if isinstance(call, Preference) and call.crash:
        return "crash"
    return call.response if call.response is not None else call.error


def _same(what: str, recorded: Any, seen: Any) -> Iterator[str]:
    """One line for each place in which they differ, as deep as both have the same shape."""
    if recorded == seen:
        return
    if isinstance(recorded, dict) and isinstance(seen, dict):
        for key in sorted(recorded.keys() | seen.keys(), key=str):
            yield from _same(f"{what}.{key}", recorded.get(key, "nothing"), seen.get(key, "nothing"))
    elif isinstance(recorded, list) and isinstance(seen, list) and len(recorded) == len(seen):
        for number, (one, other) in enumerate(zip(recorded, seen, strict=True)):
            yield from _same(f"{what}[{number}]", one, other)
    else:
        yield f"{what}: recorded {_short(recorded)}, seen {_short(seen)}"


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= LONG else f"{text[:LONG]}…"

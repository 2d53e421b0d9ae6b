"""Files as devices: what is told when they go, come back, change; and how mistakes in the options are named."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.clock import FakeClock, settle
from tests.unit.backends.host import Host, backend, probe, scan, watching
from tests.unit.backends.sink import Notes

from fairlead.backends.paths import open_backend
from fairlead.backends.paths.found import Look
from fairlead.backends.paths.scan import Scanner
from fairlead.kit.clock import SystemClock
from fairlead.kit.text import is_encodable
from fairlead.model.device import Device
from fairlead.model.errors import BackendError, ConfigError
from fairlead.model.health import CauseKind


@pytest.fixture
def host(tmp_path: Path) -> Host:
    (tmp_path / "dev").mkdir()
    return Host(tmp_path)


async def test_a_named_path_that_is_missing_is_listed_and_unhealthy_until_it_is_there(host: Host) -> None:
    paths = backend(host, {"paths": ["/dev/scope"]}, {"paths": ["/dev/maybe"], "optional": True})
    device = (await paths.discover()).devices[0]
    assert [device.id for device in (await paths.discover()).devices] == ["scope"]
    cause = await probe(paths, device)
    assert cause is not None
    assert (cause.code, cause.kind, cause.message) == ("missing-path", CauseKind.TRANSIENT, "/dev/scope is missing")
    host.put("/dev/scope")
    assert await probe(paths, device) is None
    await paths.close()


async def test_a_named_path_of_the_wrong_kind_is_listed_and_unhealthy(host: Host) -> None:
    host.put("/dev/scope", "just text")
    paths = backend(host, {"paths": ["/dev/scope"]})
    device = (await paths.discover()).devices[0]
    assert str(await probe(paths, device)) == "wrong-path: /dev/scope is a file, not a device"
    await paths.close()


async def test_a_group_with_a_part_missing_is_unhealthy_or_not_listed_when_optional(host: Host) -> None:
    host.put("/dev/a")
    group = {"name": "pair", "group": True, "paths": ["/dev/a", "/dev/b*"]}
    paths = backend(host, group)
    device = (await paths.discover()).devices[0]
    assert str(await probe(paths, device)) == "missing-path: /dev/b* is missing"
    await paths.close()
    assert await scan(backend(host, {**group, "optional": True})) == {}
    host.put("/dev/b1", "char 1:5")
    assert list(await scan(backend(host, {**group, "optional": True}))) == ["pair"]


async def test_a_probe_tells_what_has_gone_and_what_has_changed(host: Host) -> None:
    host.put("/dev/ttyUSB0", "char 188:0")
    paths = backend(host, {"paths": ["/dev/ttyUSB*"]})
    device = (await paths.discover()).devices[0]
    assert await probe(paths, device) is None
    host.put("/dev/ttyUSB0", "char 188:1")
    assert str(await probe(paths, device)) == (
        "changed-path: /dev/ttyUSB0 was a device char 188:0 and is a device char 188:1"
    )
    host.drop("/dev/ttyUSB0")
    assert str(await probe(paths, device)) == "missing-path: /dev/ttyUSB0 is missing"
    await paths.discover()
    assert str(await probe(paths, device)) == "missing-path: /dev/ttyUSB0 is missing"
    assert await probe(paths, Device(device.model)) is None
    await paths.close()


async def test_a_probe_sees_that_a_link_leads_to_the_same_node_under_another_name(host: Host) -> None:
    host.put("/dev/ttyUSB0", "char 188:0")
    host.link("/dev/modem", "ttyUSB0")
    paths = backend(host, {"paths": ["/dev/modem"]})
    device = (await paths.discover()).devices[0]
    assert [await probe(paths, device) for _ in range(3)] == [None] * 3
    (host.root / "dev/ttyUSB0").rename(host.root / "dev/ttyUSB5")
    host.drop("/dev/modem")
    host.link("/dev/modem", "ttyUSB5")
    assert str(await probe(paths, device)) == (
        "changed-path: /dev/modem was a device char 188:0 at /dev/ttyUSB0 and is a device char 188:0 at /dev/ttyUSB5"
    )
    await paths.close()


async def test_a_probe_follows_links_inside_the_root_whatever_stands_outside(host: Host) -> None:
    """The kernel would follow an absolute link out of the root: /dev/null is there on every machine."""
    host.put("/dev/null", "char 188:0")
    host.link("/dev/modem", "/dev/null")
    paths = backend(host, {"paths": ["/dev/modem"]})
    device = (await paths.discover()).devices[0]
    assert [await probe(paths, device) for _ in range(3)] == [None] * 3
    host.drop("/dev/null")
    assert str(await probe(paths, device)) == "missing-path: /dev/modem is missing"
    await paths.close()


async def test_a_path_that_stands_as_it_did_is_looked_at_once_for_each_probe(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.put("/dev/ttyUSB0", "char 188:0")
    host.link("/dev/modem", "ttyUSB0")
    paths = backend(host, {"paths": ["/dev/modem"]})
    device = (await paths.discover()).devices[0]
    assert await probe(paths, device) is None
    followed: list[str] = []
    monkeypatch.setattr(Look, "see", lambda _, path: followed.append(path))
    assert await probe(paths, device) is None
    assert followed == []
    await paths.close()


async def test_a_device_that_comes_or_goes_is_told_by_events(host: Host) -> None:
    host.put("/dev/scope")
    paths = backend(host, {"paths": ["/dev/later/card*"]}, {"paths": ["/dev/scope"]}, clock=SystemClock())
    async with watching(paths) as notes:
        host.put("/dev/later/card")
        await notes.wait_for("rescan")
        assert [device.id for device in (await paths.discover()).devices] == ["card", "scope"]
        notes.take()
        host.drop("/dev/scope")
        await notes.wait_for("fault", "scope", "missing-path")
        await paths.discover()
        host.put("/dev/scope")
        await notes.wait_for("clear", "scope", "missing-path")
        await paths.discover()
        notes.take()
        host.drop("/dev/later/card")
        await notes.wait_for("rescan")


@pytest.fixture
def eventless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that gives no notices."""
    monkeypatch.setattr("fairlead.kit.notices.Notices._open", lambda *_: None)


@pytest.mark.usefixtures("eventless")
async def test_what_events_do_not_show_the_poll_does(host: Host) -> None:
    clock = FakeClock()
    host.put("/dev/scope")
    async with watching(backend(host, {"paths": ["/dev/*"]}, clock=clock)) as notes:
        await clock.until_asleep(30)
        host.put("/dev/other", "char 1:5")
        assert notes.take() == []
        await clock.advance(30)
        await notes.wait_for("rescan")


async def test_nothing_is_told_of_devices_that_no_scan_has_found_yet(host: Host) -> None:
    paths = backend(host, {"paths": ["/dev/scope"]})
    notes = Notes()
    task = asyncio.create_task(paths.watch(notes))
    await settle()
    assert notes.take() == []
    await paths.discover()
    await notes.wait_for("fault", "scope", "missing-path")
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    await paths.close()


@pytest.mark.usefixtures("eventless")
async def test_a_fault_that_stands_at_the_start_is_told_once(host: Host) -> None:
    clock = FakeClock()
    async with watching(backend(host, {"paths": ["/dev/scope"]}, clock=clock)) as notes:
        for _ in range(3):
            await clock.until_asleep(30)
            await clock.advance(30)
        assert notes.take() == [("fault", "scope", "missing-path")]


@pytest.mark.usefixtures("eventless")
async def test_a_scan_that_fails_does_not_end_the_watching(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def burst(*_: object) -> None:
        raise BackendError("no")

    clock = FakeClock()
    async with watching(backend(host, {"paths": ["/dev/scope"]}, clock=clock)) as notes:
        await clock.until_asleep(30)
        host.put("/dev/scope")
        with monkeypatch.context() as patch:
            patch.setattr(Scanner, "scan", burst)
            await clock.advance(30)
            await clock.until_asleep(30)
        assert ("clear", "scope", "missing-path") not in notes.lines
        await clock.advance(30)
        await notes.wait_for("clear", "scope", "missing-path")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "paths: the key 'devices' is missing"),
        ({"devices": [{"path": ["/dev/x"]}]}, "paths: devices[0]: unknown key 'path'; did you mean 'paths'?"),
        ({"devices": [{"paths": "/dev/x"}]}, "paths: devices[0].paths: expected a list, got '/dev/x'"),
        ({"devices": [{"paths": []}]}, "paths: devices[0].paths: give at least one"),
        ({"devices": [{"paths": ["dev/x"]}]}, "paths: devices[0].paths: 'dev/x' is not an absolute path"),
        ({"devices": [{"paths": ["/dev/../etc/x"]}]}, "devices[0].paths: '/dev/../etc/x' holds '..'"),
        ({"devices": [{"paths": ["/dev/\x00"]}]}, "holds a zero byte"),
        ({"devices": [{"paths": ["/dev/x"], "permissions": "rx"}]}, "permissions: 'rx' is not made of r, w and m"),
        ({"devices": [{"paths": ["/dev/x"], "permissions": ""}]}, "permissions: '' is not made of r, w and m"),
        ({"devices": [{"paths": ["/dev/x"], "allow": ["fil"]}]}, "unknown value 'fil'; did you mean 'file'?"),
        ({"devices": [{"paths": ["/dev/x"], "allow": []}]}, "allow: give at least one kind"),
        ({"devices": [{"paths": ["/dev/x"], "group": True}]}, "name: a group is one device of several paths"),
        ({"devices": [{"paths": ["/dev/x"], "name": "{nam}"}]}, "name: '{nam}' uses {nam}; did you mean 'name'?"),
        ({"devices": [{"paths": ["/dev/x"], "name": ""}]}, "name: it is empty"),
        (
            {"devices": [{"paths": ["/dev/x"], "mounts": [{"host": "x"}]}]},
            "mounts.host: 'x' is not",
        ),
        (
            {"devices": [{"paths": ["/dev/x"], "mounts": [{"host": "/x", "container": "y"}]}]},
            "mounts.container: 'y' is not an absolute path",
        ),
        ({"devices": [], "hostRoot": "host"}, "paths: hostRoot: 'host' is not an absolute path"),
        ({"devices": [], "poll": "10ms"}, "paths: poll: 0.01 s is too often"),
    ],
)
def test_a_mistake_is_named_with_its_place_its_value_and_a_way_out(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_backend(options, FakeClock())
    assert message in str(caught.value)


def test_every_mistake_is_named_at_once() -> None:
    entry = {"paths": ["x"], "permissions": "z"}
    with pytest.raises(ConfigError) as caught:
        open_backend({"devices": [entry, entry]}, FakeClock())
    assert len(caught.value.problems) == 4


async def test_a_name_that_is_not_utf8_is_listed_and_unhealthy(host: Host) -> None:
    host.put(os.fsdecode(b"/dev/nic\xff"))
    host.put("/dev/nic0")
    (host.root / "dev/nic1").symlink_to(os.fsdecode(b"nic\xff"))
    paths = backend(host, {"paths": ["/dev/nic*"]})
    devices = (await paths.discover()).devices
    assert all(is_encodable(repr(device)) for device in devices)
    causes = {device.id: str(await probe(paths, device)) for device in devices}
    odd = r"odd-path: /dev/nic\xff is not UTF-8, and the kubelet takes no other path. Rename it"
    assert causes == {"nic0": "None", "nic1": odd}  # one thing under two names is offered once
    await paths.close()

"""A fault changes conditions, and nothing that rules, units or holders decided."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.system.rig import running

from fairlead.engine import listing
from fairlead.engine.units import Units
from fairlead.fronts.deviceplugin import encoding
from fairlead.fronts.deviceplugin.encoding import DeviceList
from fairlead.model.holdings import Unknown
from fairlead.policy.offering import budget
from fairlead.testing import Kubelet

FIRST, REST = "a.example/first", "b.example/rest"
CONFIG = f"""
backends: [{{kind: sim, fleet: h100x8}}]
rules: [{{match: {{index: 0}}, resource: {FIRST}}}, {{resource: {REST}, replicas: 2}}]
health: {{probeInterval: 20ms, hold: 20ms, probation: 20ms, cleanProbes: 1, suspect: 60s}}
"""


class Counted:
    """Calls of functions, by name, while they do their work as before."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self._monkeypatch = monkeypatch

    def watch(self, owner: Any, name: str) -> None:
        self._monkeypatch.setattr(owner, name, self._counting(name, getattr(owner, name)))

    def _counting(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **keys: Any) -> Any:
            self.calls.append((name, args))
            return real(*args, **keys)

        return counted


async def test_a_fault_encodes_its_own_device_and_settles_nothing_else(
    kubelet: Kubelet, kubelet_root: Path, monkeypatch: pytest.MonkeyPatch
):
    counted = Counted(monkeypatch)
    async with running(kubelet, kubelet_root, CONFIG) as node:
        await node.ready(FIRST, 1)
        await node.ready(REST, 14)
        while isinstance(node.daemon.holdings, Unknown) or node.daemon._stale:  # noqa: ASYNC110 - no event tells it
            await asyncio.sleep(0)  # after the first lists the daemon reads who holds what, and settles once more
        listed = {name: endpoint.device_list for name, endpoint in node.daemon.supervisor.endpoints.items()}
        for owner, name in (
            (listing, "make_offering"),
            (listing, "retain"),
            (listing.Listing, "settle"),
            (Units, "decide"),
            (encoding, "_encode_device"),
            (budget, "check"),
        ):
            counted.watch(owner, name)
        await node.steer(do="fail", device="3", xid=79)
        await kubelet.wait_for_allocatable(REST, 12)
        failed = node.ids()[3]
        assert [(name, args[0].name, args[2]) for name, args in counted.calls] == [("_encode_device", REST, failed)]
        for endpoint in node.daemon.supervisor.endpoints.values():
            now, before = endpoint.device_list, listed[endpoint.name]
            assert now.resource is before.resource
            assert (now.frame is before.frame) == (endpoint.name == FIRST)
            assert now.conditions.unhealthy == {failed}  # an Allocate meets the conditions of this moment


@pytest.mark.parametrize("reloading", [False, True])
async def test_a_failed_device_that_leaves_is_never_listed_as_healthy(
    kubelet: Kubelet, kubelet_root: Path, monkeypatch: pytest.MonkeyPatch, reloading: bool
):
    async with running(kubelet, kubelet_root, CONFIG) as node:
        await node.ready(REST, 14)
        await node.steer(do="fail", device="3", xid=79)
        await kubelet.wait_for_allocatable(REST, 12)
        failed, daemon = node.ids()[3], node.daemon
        (source,) = daemon.engine.sources.live.values()
        endpoint = next(each for each in daemon.supervisor.endpoints.values() if each.name == REST)
        lists: list[DeviceList] = []
        monkeypatch.setattr(endpoint, "_set", lists.append)
        # A condition has changed, and at the same moment a scan no longer finds the device.
        daemon.refresh_health()
        found = source.findings
        monkeypatch.setattr(source, "findings", replace(found, devices=(*found.devices[:3], *found.devices[4:])))
        daemon.refresh()
        daemon._ready = not reloading  # as a reload does while it asks who holds what
        await asyncio.sleep(0)
        daemon._ready = True
        daemon.settle()
        assert lists
        for made in lists:
            slots = [slot for slot in made.resource.slots if slot.device == failed]
            assert len(slots) == 2
            assert not any(slot.usable(made.conditions) for slot in slots)

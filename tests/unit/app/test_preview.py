"""What a daemon that starts now would offer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.policy.placement.cards import GIB, NAME, node

from fairlead.app.preview import preview
from fairlead.config.load import Loaded
from fairlead.config.spec import Config, KubeletSpec
from fairlead.model.holdings import Holder, Holdings, Unknown
from fairlead.model.inventory import Inventory
from fairlead.model.names import SlotId
from fairlead.model.resource import MemoryTerms, Terms
from fairlead.policy.offering.memory import MIB, cut
from fairlead.policy.offering.rules import ANY, Rule

CARDS = node(*[80 * GIB] * 8)


@pytest.mark.parametrize(
    ("ids", "slot", "stays"),
    [("", cut(CARDS[0], 64 * MIB)[0].id, 64 * MIB), ("fakeID---{index}---", SlotId("fakeID---0---0"), 16 * MIB)],
    ids=["our ids", "theirs"],
)
async def test_a_unit_that_pods_hold_stays_where_no_daemon_has_written_it_down(
    ids: str, slot: SlotId, stays: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    found: Holdings | Unknown = Holdings({(NAME, slot): Holder("default", "p", "main")})

    async def read(_socket: Path, *, timeout_s: float) -> Holdings | Unknown:
        del timeout_s
        return found

    monkeypatch.setattr("fairlead.app.preview.read_holdings", read)
    share = MemoryTerms(16 * MIB, ids=ids, max_stall_s=0.5) if ids else MemoryTerms()
    config = Config(kubelet=KubeletSpec(directory=str(tmp_path), pod_resources="/pod-resources"))
    loaded = Loaded(config, (Rule(ANY, NAME, terms=Terms(memory=share)),), "test")
    (planned,) = (await preview(loaded, Inventory(CARDS))).resources
    assert planned.unit_bytes == stays
    found = Unknown("there is no kubelet")
    (planned,) = (await preview(loaded, Inventory(CARDS))).resources
    assert planned.unit_bytes == 512 * MIB


@pytest.mark.parametrize(("per_card", "stays"), [(10_240, 8 * MIB), (160, 512 * MIB)], ids=["before", "now"])
async def test_without_pod_resources_the_unit_is_the_one_that_the_kubelets_checkpoint_lists(
    per_card: int, stays: int, tmp_path: Path
):
    """As the daemon takes it: a version before this one grew it by the length of the list alone."""
    listed = {NAME: [f"fakeID---{index}---{number}" for index in range(8) for number in range(per_card)]}
    checkpoint = {"Data": {"PodDeviceEntries": None, "RegisteredDevices": listed}, "Checksum": 0}
    (tmp_path / "kubelet_internal_checkpoint").write_text(json.dumps(checkpoint))
    share = MemoryTerms(MIB, ids="fakeID---{index}---")
    config = Config(kubelet=KubeletSpec(directory=str(tmp_path), pod_resources=""))
    loaded = Loaded(config, (Rule(ANY, NAME, terms=Terms(memory=share)),), "test")
    (planned,) = (await preview(loaded, Inventory(CARDS))).resources
    assert planned.unit_bytes == stays

"""The unit in use under another plugin's ids, which do not say it: it stays while pods hold some, or may hold some."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.unit.policy.placement.cards import GIB, NAME, node

from fairlead.engine.listing import Listing
from fairlead.engine.unitfile import UnitFiles, file_name
from fairlead.engine.units import GRANT_S, Units
from fairlead.model.device import Device
from fairlead.model.inventory import ALL_HEALTHY, Inventory
from fairlead.model.names import ResourceName, SlotId
from fairlead.model.resource import MemoryTerms, Resource, Terms
from fairlead.policy.offering.listbytes import worst_bytes
from fairlead.policy.offering.memory import MIB
from fairlead.policy.offering.rules import ANY, Rule

THEIRS = "fakeID---{index}---"
TWO = node(80 * GIB, 80 * GIB)
GREW = 128 * MIB  # of MiB, for two such cards
Held = Mapping[ResourceName, frozenset[SlotId]]
NOBODY: Held = {}


def rule(
    unit_bytes: int = MIB, *, grow: bool = True, ids: str = THEIRS, max_stall_s: float | None = None
) -> tuple[Rule, ...]:
    memory = MemoryTerms(unit_bytes, grow=grow, ids=ids, max_stall_s=max_stall_s)
    return (Rule(ANY, NAME, terms=Terms(memory=memory)),)


def start(
    directory: Path,
    on_disk: frozenset[ResourceName] | None = frozenset(),
    listed: frozenset[SlotId] = frozenset(),
) -> Listing:
    """A daemon that has just started: it knows what the directory says, and what the kubelet was offered before."""
    files = UnitFiles(directory)
    files.read()
    return Listing(Units(files, lambda: on_disk, lambda _name: listed))


def settle(
    listing: Listing, devices: tuple[Device, ...], held: Held | None, rules: tuple[Rule, ...] = rule(), at: float = 0
) -> Resource:
    (resource,) = listing.settle(Inventory(devices), rules, held, at)
    assert listing.units.files.save(0.0) == ""
    return resource


def holding(count: int, card: int = 0) -> Held:
    return {NAME: frozenset(SlotId(f"fakeID---{card}---{number}") for number in range(count))}


def free(resource: Resource, held: Held) -> int:
    return sum(slot.usable(ALL_HEALTHY) and slot.id not in held[NAME] for slot in resource.slots)


def test_a_unit_that_grew_does_not_shrink_with_a_card_less_while_a_pod_holds_some(tmp_path: Path):
    assert settle(start(tmp_path), TWO, NOBODY).unit_bytes == GREW
    held = holding(470)
    listing = start(tmp_path)
    after = settle(listing, TWO[:1], held)
    assert (after.unit_bytes, after.wanted_unit_bytes) == (GREW, MIB)
    assert free(after, held) == 640 - 470
    assert "stays 128MiB and does not become 1MiB: pods hold units of it. Drain the node to change it" in after.note
    assert "An amount of 1 means 128MiB here" in after.note
    assert listing.kept_units == {NAME: (GREW, MIB, after.note)}


def test_it_changes_when_no_pod_holds_any(tmp_path: Path):
    settle(start(tmp_path), TWO, NOBODY)
    listing = start(tmp_path)
    assert settle(listing, TWO[:1], holding(1)).unit_bytes == GREW
    assert set(listing.kept_units) == {NAME}
    after = settle(listing, TWO[:1], NOBODY, at=1)
    assert (after.unit_bytes, after.wanted_unit_bytes, after.note) == (MIB, 0, "")
    assert listing.kept_units == {}
    assert settle(start(tmp_path), TWO[:1], None).unit_bytes == MIB


BY_LENGTH = rule(max_stall_s=0)  # as daemons chose before the kubelet's time counted


def test_an_upgrade_keeps_the_unit_that_the_version_before_chose_until_no_pod_holds_any(tmp_path: Path):
    assert settle(start(tmp_path), TWO, NOBODY, BY_LENGTH).unit_bytes == 2 * MIB
    held = holding(30_000)
    listing = start(tmp_path)
    for _ in range(2):
        after = settle(listing, TWO, held)
        assert (after.unit_bytes, after.wanted_unit_bytes) == (2 * MIB, GREW)
        assert free(after, held) == 81_920 - 30_000
        assert "stays 2MiB and does not become 128MiB: pods hold units of it. Drain the node" in after.note
    after = settle(start(tmp_path), TWO, None)  # and again, with a kubelet that is silent
    assert (after.unit_bytes, after.wanted_unit_bytes) == (2 * MIB, GREW)
    after = settle(listing, TWO, NOBODY, at=1)
    assert (after.unit_bytes, after.wanted_unit_bytes) == (GREW, 0)
    assert settle(start(tmp_path), TWO, holding(3)).unit_bytes == GREW


@pytest.mark.parametrize("held", [holding(100), None], ids=["held", "unknown"])
@pytest.mark.parametrize(
    ("per_card", "unit_bytes"),
    [(0, GREW), (640, GREW), (40_960, 2 * MIB), (79, GREW)],
    ids=["no list", "our list", "list of the version before", "another list"],
)
def test_where_no_file_says_the_unit_the_kubelets_list_does(
    per_card: int, unit_bytes: int, held: Held | None, tmp_path: Path
):
    """In MiB the kubelet would have refused the list, whichever plugin sent it: so pods hold no units of 1 MiB."""
    listed = frozenset(SlotId(f"fakeID---{card}---{number}") for card in range(2) for number in range(per_card))
    after = settle(start(tmp_path, listed=listed), TWO, held)
    assert after.unit_bytes == unit_bytes
    assert after.wanted_unit_bytes == (GREW if unit_bytes != GREW else 0)


def test_a_card_that_came_after_the_plugin_before_does_not_change_the_unit_of_its_pods(tmp_path: Path):
    """With one card its list of 1 MiB was accepted."""
    listed = frozenset(SlotId(f"fakeID---0---{number}") for number in range(81_920))
    after = settle(start(tmp_path, listed=listed), TWO, holding(100))
    assert (after.unit_bytes, after.wanted_unit_bytes) == (MIB, GREW)
    assert {slot.device for slot in after.slots} == {TWO[0].id}


def test_it_stays_where_the_kubelet_does_not_say_who_holds_what(tmp_path: Path):
    settle(start(tmp_path), TWO, None)
    after = settle(start(tmp_path), TWO[:1], None)
    assert after.unit_bytes == GREW
    assert f"remove {tmp_path / file_name(NAME)} when the node is drained" in after.note


@pytest.mark.parametrize("on_disk", [frozenset({NAME}), None], ids=["named", "not read"])
def test_a_kubelet_that_knows_no_pod_yet_is_not_believed_against_its_own_books(
    on_disk: frozenset[ResourceName] | None, tmp_path: Path
):
    settle(start(tmp_path), TWO, NOBODY)
    after = settle(start(tmp_path, on_disk), TWO[:1], NOBODY)
    assert (after.unit_bytes, after.wanted_unit_bytes) == (GREW, MIB)


def test_an_answer_from_before_the_last_grant_does_not_count(tmp_path: Path):
    listing = start(tmp_path)
    settle(listing, TWO, NOBODY)
    listing.units.granted(NAME, 100.0)
    coarse = rule(1024 * MIB)
    for asked_s, unit_bytes in ((50.0, GREW), (101.0, GREW), (100 + GRANT_S, GIB)):
        listing.units.asked_s = asked_s
        assert settle(listing, TWO, NOBODY, coarse, at=1000).unit_bytes == unit_bytes


@pytest.mark.parametrize("before", [256, 1024])
def test_another_configured_unit_waits_until_no_pod_holds_the_old_one(before: int, tmp_path: Path):
    """Volcano's factor, gpushare's unit: larger or smaller."""
    other = 1280 - before
    settle(start(tmp_path), TWO, NOBODY, rule(before * MIB))
    listing = start(tmp_path)
    for _ in range(2):
        after = settle(listing, TWO, holding(3), rule(other * MIB))
        assert (after.unit_bytes, after.wanted_unit_bytes) == (before * MIB, other * MIB)
    assert settle(listing, TWO, NOBODY, rule(other * MIB), at=1).unit_bytes == other * MIB


def test_a_changed_unit_on_reload_waits_as_well(tmp_path: Path):
    listing = start(tmp_path)
    settle(listing, TWO, NOBODY)
    after = settle(listing, TWO, holding(3), rule(GIB, grow=False))
    assert (after.unit_bytes, after.wanted_unit_bytes) == (GREW, GIB)


def test_a_unit_that_is_refused_now_stays_for_the_pods_that_hold_it(tmp_path: Path):
    settle(start(tmp_path), TWO[:1], NOBODY)
    listing = start(tmp_path)
    after = settle(listing, TWO, holding(5), rule(grow=False))
    assert after.unit_bytes == MIB
    assert not listing.offering.refused


def test_a_card_that_does_not_fit_with_the_unit_in_use_is_left_out_and_told(tmp_path: Path):
    """Wherever it stands in the order of cards: the one that pods hold stays listed."""
    settle(start(tmp_path), (replace(TWO[1], index="1"),), NOBODY)
    listing, held = start(tmp_path), holding(30_000, card=1)
    after = settle(listing, TWO, held)
    assert after.unit_bytes == MIB
    assert {slot.device for slot in after.slots} == {TWO[1].id}
    assert worst_bytes(after) <= 4 * MIB
    (problem,) = listing.problems
    assert problem.startswith(f"device {TWO[0].id!r} is left out: with it, the list in units of 1MiB would be over")
    assert settle(listing, TWO, NOBODY, at=1).unit_bytes == GREW


@pytest.mark.parametrize("held", [{NAME: frozenset({SlotId("fakeID---0---70000")})}, None], ids=["held", "unknown"])
def test_pods_of_the_plugin_before_keep_their_unit_where_ours_may_grow_for_the_kubelet(
    held: Held | None, tmp_path: Path
):
    """No file says so: the unit is then that plugin's, unless the kubelet was offered another one."""
    rules = rule(max_stall_s=0.5)
    ours = frozenset(SlotId(f"fakeID---0---{number}") for number in range(1280))
    listing = start(tmp_path)
    after = settle(listing, TWO[:1], held, rules)
    assert (after.unit_bytes, after.wanted_unit_bytes) == (MIB, 64 * MIB)
    assert settle(listing, TWO[:1], NOBODY, rules, at=1).unit_bytes == 64 * MIB
    (tmp_path / file_name(NAME)).unlink()
    assert settle(start(tmp_path, listed=ours), TWO[:1], held, rules).unit_bytes == 64 * MIB


def test_our_own_ids_stay_where_nobody_says_who_holds_what(tmp_path: Path):
    """Else units of the new size would be free beside those that pods hold."""
    settle(start(tmp_path), TWO, None, rule(GIB, grow=False, ids=""))
    after = settle(start(tmp_path), TWO, None, rule(2 * GIB, grow=False, ids=""))
    assert (after.unit_bytes, after.wanted_unit_bytes) == (GIB, 2 * GIB)


@pytest.mark.parametrize("content", [b"", b"{", b'{"version":1,"resource":"x","unit_mib":2}', b"\0" * 9999])
def test_a_damaged_file_gives_nothing_away_while_pods_hold_units(content: bytes, tmp_path: Path):
    settle(start(tmp_path), TWO, NOBODY)
    file = tmp_path / file_name(NAME)
    file.write_bytes(content)
    listing = start(tmp_path)
    for held in (holding(10), None):
        after = settle(listing, TWO[:1], held)
        assert not any(slot.usable(ALL_HEALTHY) for slot in after.slots)
        assert f"{file} cannot be read (" in listing.problems[0]
        assert "Drain the node" in listing.problems[0]
        assert file.read_bytes() == content
        assert listing.units.waiting == {NAME}
    after = settle(listing, TWO[:1], NOBODY, at=1)
    assert listing.units.waiting == set()
    assert all(slot.usable(ALL_HEALTHY) for slot in after.slots)
    assert settle(start(tmp_path), TWO[:1], None).unit_bytes == MIB


def test_a_file_from_before_another_plugin_served_is_not_believed_against_the_kubelets_list(tmp_path: Path):
    """Fairlead in 128 MiB, then the other plugin in GiB, whose pods still run, then Fairlead in GiB."""
    settle(start(tmp_path), TWO, NOBODY)
    theirs = frozenset(SlotId(f"fakeID---{card}---{number}") for card in range(2) for number in range(80))
    after = settle(start(tmp_path, listed=theirs), TWO, holding(70), rule(GIB))
    assert (after.unit_bytes, after.wanted_unit_bytes) == (GIB, 0)
    assert settle(start(tmp_path), TWO, holding(70), rule(GIB)).unit_bytes == GIB


@pytest.mark.parametrize("count", [0, 79, 640], ids=["no list", "another list", "our list"])
def test_a_file_is_believed_where_the_kubelets_list_is_not_in_the_unit_that_is_asked_for(count: int, tmp_path: Path):
    settle(start(tmp_path), TWO, NOBODY)
    listed = frozenset(SlotId(f"fakeID---0---{number}") for number in range(count))
    after = settle(start(tmp_path, listed=listed), TWO, holding(70), rule(GIB))
    assert after.unit_bytes == GREW

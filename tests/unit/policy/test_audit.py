"""The audit: each planted contradiction is named once with its cure, and cleared once; a healthy node has none."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.model.device import Device, DeviceNode
from fairlead.model.edits import Edits
from fairlead.model.holdings import Holder, Holdings, Unknown
from fairlead.model.inventory import Inventory
from fairlead.model.names import DeviceId, ResourceName, SlotId
from fairlead.model.resource import Resource
from fairlead.policy.audit import (
    SETTLE_S,
    Difference,
    Entry,
    Granted,
    Kind,
    Known,
    NotLookedAt,
    Processes,
    Use,
    Views,
    compare,
    own_nodes,
    update,
)
from fairlead.policy.offering.rules import ANY, Rule, make_offering

GPU = ResourceName("example.com/gpu")
CONTROL = DeviceNode("/dev/gpuctl")
A, B = SlotId("a"), SlotId("b")


def devices(*more: Device) -> tuple[Device, ...]:
    plain = (Device(DeviceId(name), nodes=(DeviceNode(f"/dev/{name}"), CONTROL)) for name in "ab")
    return (*plain, *more)


def resource(*more: Device) -> Resource:
    (made,) = make_offering(Inventory(devices(*more)), [Rule(ANY, GPU)]).resources
    return made


def entry(slot: SlotId = A, uid: str = "uid-1", **edits: Any) -> Entry:
    return Entry(uid, "main", GPU, frozenset({slot}), Edits(**edits))


HOLDER = Holder("default", "train", "main")
OTHER = Holder("default", "other", "main")
# A pod that holds a, and uses it. Nothing of this contradicts.
WELL = Views(
    now_s=1000.0,
    resources=[resource()],
    granted=(Granted(GPU, frozenset({A}), 900.0),),
    holdings=Holdings({(GPU, A): HOLDER}),
    entries=(entry(env={"VISIBLE": "a"}),),
    processes=Processes((Use(70, "python", "/dev/a", "uid-1"),), frozenset({"uid-1"})),
    expected=((entry(env={"VISIBLE": "a"}), Edits(env={"VISIBLE": "a"})),),
)
STRAY = Granted(GPU, frozenset({B}), 1000.0 - SETTLE_S)
PLANTED: dict[Kind, tuple[Views, str]] = {
    Kind.ORPHAN_GRANT: (replace(WELL, granted=(STRAY,)), "Allocate gave b of example.com/gpu"),
    Kind.DOUBLE_GRANT: (
        replace(WELL, holdings=Holdings({(GPU, A): OTHER}, {(GPU, A): HOLDER})),
        "a of example.com/gpu is held by default/train/main and by default/other/main",
    ),
    Kind.GHOST_USE: (
        replace(WELL, processes=Processes((Use(7, "miner", "/dev/b"),), frozenset({"uid-1"}))),
        "process 7 (miner), which is in no pod, has /dev/b of the device b open",
    ),
    Kind.STALE_ENTRY: (
        replace(WELL, processes=Processes()),
        "the kubelet holds a of example.com/gpu for default/train/main, and no process of that pod runs",
    ),
    Kind.WRONG_ENVIRONMENT: (
        replace(WELL, expected=((entry(env={"VISIBLE": "b"}), Edits(env={"VISIBLE": "a", "NEW": "1"})),)),
        "default/train/main holds a of example.com/gpu, and was given VISIBLE='b' where these are 'a'",
    ),
}


def test_on_a_healthy_node_nothing_differs():
    assert compare(WELL) == ((), ())


@pytest.mark.parametrize("kind", PLANTED)
def test_each_contradiction_is_found_and_no_other(kind: Kind):
    views, seen = PLANTED[kind]
    (found,), lacking = compare(views)
    assert (found.kind, lacking) == (kind, ())
    assert found.seen.startswith(seen)
    assert found.cure


def test_every_kind_has_a_planted_contradiction():
    assert PLANTED.keys() == set(Kind)


def test_a_grant_has_time_until_the_kubelet_has_written_it_down():
    fresh = replace(WELL, granted=(replace(STRAY, at_s=STRAY.at_s + 0.1),))
    assert compare(fresh) == ((), ())


def test_an_init_container_is_in_the_checkpoint_only():
    views = replace(WELL, granted=(STRAY,), entries=(*WELL.entries, entry(B)))  # type: ignore[misc]  # they are known
    assert compare(views) == ((), ())


def test_a_pod_that_uses_a_device_which_another_one_holds_is_named():
    stranger = Processes((Use(9, "python", "/dev/a", "uid-2"),), frozenset({"uid-1", "uid-2"}))
    (found,), _ = compare(replace(WELL, processes=stranger))
    assert found.kind == Kind.GHOST_USE
    assert "of the pod with uid uid-2, which does not hold it" in found.seen


def test_where_it_is_not_known_which_pods_hold_what_only_processes_in_no_pod_are_named():
    uses = (Use(9, "python", "/dev/a", "uid-2"), Use(8, "miner", "/dev/a"))
    views = replace(WELL, processes=Processes(uses, frozenset()), entries=Unknown("no file"))
    found, lacking = compare(views)
    assert [one.about for one in found] == ["a 8"]
    assert {one.kind for one in lacking} == {Kind.ORPHAN_GRANT, Kind.STALE_ENTRY, Kind.WRONG_ENVIRONMENT}


def test_a_node_that_devices_share_says_nothing_and_neither_does_one_that_is_not_offered():
    spare = Device(DeviceId("c"), nodes=(DeviceNode("/dev/c"),))
    offered = make_offering(
        Inventory(devices(spare)),
        [Rule(ANY, GPU)],  # then c is taken out of what is offered
    ).resources[0]
    without = replace(offered, slots=tuple(slot for slot in offered.slots if slot.device != "c"))
    assert own_nodes([without]) == {"/dev/a": "a", "/dev/b": "b"}


def test_a_partition_of_a_device_is_held_with_it():
    part = Device(DeviceId("a-1"), parent=DeviceId("a"), nodes=(DeviceNode("/dev/a-1"),))
    views = replace(
        WELL,
        resources=[resource(part)],
        granted=(),
        holdings=Holdings({(GPU, SlotId("a-1")): HOLDER}),
        entries=(entry(SlotId("a-1")),),
        expected=(),
        processes=Processes((Use(70, "python", "/dev/a", "uid-1"),), frozenset({"uid-1"})),
    )
    assert compare(views) == ((), ())


def test_an_id_that_is_not_listed_is_an_entry_of_another_plugin():
    old = SlotId("old")
    views = replace(WELL, granted=(), holdings=Holdings({(GPU, old): HOLDER}), entries=(entry(old),), expected=())
    views = replace(views, processes=Processes((), frozenset({"uid-1"})))
    (found,), _ = compare(views)
    assert found.seen.startswith("default/train/main holds old of example.com/gpu, which is not listed: another plugin")


@pytest.mark.parametrize(
    ("given", "expected", "words"),
    [
        (
            Edits(nodes=(DeviceNode("/dev/a"),)),
            Edits(nodes=(DeviceNode("/dev/b"),)),
            "the nodes /dev/a where these have",
        ),
        (Edits(cdi=("v/c=a",)), Edits(cdi=("v/c=b",)), "was given v/c=a where these are v/c=b"),
        (Edits(env={"OLD": "1"}), Edits(env={"NEW": "1"}), ""),
        (Edits(cdi=("v/c=a",)), Edits(env={"VISIBLE": "a"}, nodes=(DeviceNode("/dev/a"),)), ""),
    ],
)
def test_a_change_of_configuration_is_no_contradiction(given: Edits, expected: Edits, words: str):
    held = replace(entry(), edits=given)
    found, _ = compare(replace(WELL, expected=((held, expected),)))
    assert [words in one.seen for one in found] == ([True] if words else [])


# --- Reported once, cleared once --------------------------------------------------------------------------------------


def difference(about: str = "a") -> Difference:
    return Difference(Kind.GHOST_USE, about, "seen", "cure")


def play(*looks: list[str] | None) -> list[tuple[list[str], list[str]]]:
    """What is reported and cleared by each look; None: it could not look."""
    known, said = Known(), []
    for look in looks:
        lacking = [NotLookedAt(Kind.GHOST_USE, "hidden")] if look is None else []
        change = update(known, map(difference, look or ()), lacking)
        known = change.known
        said.append(([one.about for one in change.reported], [one.about for one in change.cleared]))
    return said


def test_what_is_seen_in_two_looks_is_reported_once_and_cleared_once():
    assert play(["a"], ["a"], ["a"], [], []) == [([], []), (["a"], []), ([], []), ([], ["a"]), ([], [])]


def test_what_came_and_went_between_two_looks_is_never_reported():
    assert play(["a"], ["b"], ["a"], []) == [([], [])] * 4


def test_a_look_that_could_not_be_had_clears_nothing():
    assert play(["a"], ["a"], None, None, ["a"], []) == [
        ([], []),
        (["a"], []),
        ([], []),
        ([], []),
        ([], []),
        ([], ["a"]),
    ]

"""First match wins, every device can say why, and one odd device never spoils the others."""

import random

import pytest
from msgspec.structs import replace

from fairlead.model.assign import Assign
from fairlead.model.device import Device
from fairlead.model.edits import Edits
from fairlead.model.inventory import Inventory
from fairlead.model.names import DeviceId, ResourceName
from fairlead.model.resource import MemoryTerms, Strategy, Terms
from fairlead.policy.offering.rules import ANY, TERM_NAMES, Rule, Selector, check_rules, make_offering, rule_of

GPU, MIG = ResourceName("nvidia.com/gpu"), ResourceName("nvidia.com/mig")
GIB = 1024**3

A100 = Device(
    DeviceId("GPU-a"),
    index="0",
    vendor="NVIDIA",
    model="A100-SXM4-40GB",
    memory_bytes=40 * GIB,
    pci_address="0000:3B:00.0",
    numa_nodes=(1,),
)
T4 = Device(DeviceId("GPU-t"), index="1", vendor="NVIDIA", model="Tesla T4", memory_bytes=16 * GIB)
PART = Device(DeviceId("MIG-1"), index="0:1", vendor="NVIDIA", model="A100 1g.5gb", parent=A100.id)


def ids(devices: tuple[Device, ...], rules: list[Rule]) -> dict[str, list[str]]:
    return {r.name: [s.id for s in r.slots] for r in make_offering(Inventory(devices), rules).resources}


@pytest.mark.parametrize(
    ("match", "expected"),
    [
        (ANY, "at"),
        (Selector(ids=("GPU-a",)), "a"),
        (Selector(ids=("gpu-*",)), ""),
        (Selector(indexes=("0", "7")), "a"),
        (Selector(indexes=("0:*",)), ""),
        (Selector(pci=("0000:3b:*",)), "a"),
        (Selector(vendors=("nvidia",)), "at"),
        (Selector(models=("*t4*",)), "t"),
        (Selector(models=("a100*", "tesla*")), "at"),
        (Selector(memory_min_bytes=40 * GIB), "a"),
        (Selector(memory_max_bytes=16 * GIB), "t"),
        (Selector(memory_min_bytes=16 * GIB, memory_max_bytes=39 * GIB), "t"),
        (Selector(numa=(0, 1)), "a"),
        (Selector(numa=(0,)), ""),
        (Selector(models=("*t4*",), numa=(1,)), ""),
    ],
)
def test_every_given_part_must_match(match: Selector, expected: str) -> None:
    slots = ids((A100, T4), [Rule(match, GPU)]).get(GPU, [])
    assert [slot[-1] for slot in slots] == list(expected)


def test_partitions_are_matched_by_their_index() -> None:
    assert ids((A100, PART), [Rule(Selector(indexes=("0:*",)), MIG), Rule(ANY, GPU)]) == {
        GPU: ["GPU-a"],
        MIG: ["MIG-1"],
    }


def test_the_first_match_wins_and_says_why_not_the_earlier_ones() -> None:
    rules = [Rule(Selector(models=("A100*",)), GPU), Rule(ANY, MIG, label="rest")]
    a, t = make_offering(Inventory((A100, T4)), rules).matches
    assert (a.device, a.rule, a.resource, a.reason) == ("GPU-a", 0, GPU, "matches rule 1")
    assert (t.rule, t.label) == (1, "rest")
    assert t.reason == "matches rule 2 (rest); not rule 1: model 'Tesla T4' is not 'A100*'"


def test_a_device_can_be_left_out_by_rule_or_by_having_none() -> None:
    by_rule = make_offering(Inventory((A100,)), [Rule(ANY, None), Rule(ANY, GPU)])
    assert by_rule.resources == ()
    assert by_rule.matches[0].reason == "matches rule 1, which leaves it out"
    by_none = make_offering(Inventory((T4,)), [Rule(Selector(numa=(2,)), GPU)])
    assert (by_none.matches[0].rule, by_none.resources, by_none.problems) == (None, (), ())
    assert by_none.matches[0].reason == "no rule matches; not rule 1: NUMA node unknown is not '2'"


@pytest.mark.parametrize(
    ("match", "words"),
    [
        (Selector(memory_min_bytes=50), "memory 42 bytes is under 50"),
        (Selector(memory_max_bytes=41), "memory 42 bytes is over 41"),
        (Selector(pci=("x",)), "pci address '' is not 'x'"),
    ],
)
def test_a_miss_names_the_part_that_failed(match: Selector, words: str) -> None:
    assert match.miss(Device(DeviceId("d"), memory_bytes=42)) == words


def test_slots_come_in_device_order_however_the_backend_lists_them() -> None:
    devices = [Device(DeviceId(f"d{n}"), index=str(n)) for n in range(12)]
    random.Random(3).shuffle(devices)
    assert ids(tuple(devices), [Rule(ANY, GPU)])[GPU] == [f"d{n}" for n in range(12)]


def test_resources_come_by_name_and_carry_the_rule() -> None:
    extra = Edits(env={"A": "1"})
    rules = [
        Rule(Selector(indexes=("1",)), MIG, replicas=2, terms=Terms(strategy=Strategy.SPREAD, extra=extra)),
        Rule(ANY, GPU),
    ]
    gpu, mig = make_offering(Inventory((A100, T4)), rules).resources
    assert (gpu.name, mig.name) == (GPU, MIG)
    assert mig.terms is rules[0].terms
    assert [slot.id for slot in mig.slots] == ["GPU-t::0", "GPU-t::1"]
    assert mig.device(mig.slots[0]) == T4


def test_two_rules_fill_one_resource_with_the_settings_of_the_first_rule() -> None:
    rules = [Rule(Selector(indexes=("1",)), GPU, terms=Terms(strategy=Strategy.PACK)), Rule(ANY, GPU, replicas=2)]
    (gpu,) = make_offering(Inventory((A100, T4)), rules).resources
    assert gpu.terms.strategy is Strategy.PACK
    assert [slot.id for slot in gpu.slots] == ["GPU-a::0", "GPU-a::1", "GPU-t"]


def test_a_device_found_twice_is_offered_once() -> None:
    result = make_offering(Inventory((A100, replace(A100, model="other"))), [Rule(ANY, GPU)])
    assert [slot.id for slot in result.resources[0].slots] == ["GPU-a"]
    assert result.resources[0].device(result.resources[0].slots[0]) == A100
    assert result.problems == ("device 'GPU-a' was found twice; the second one is left out",)


def test_colliding_slot_ids_leave_out_the_later_device_even_across_resources() -> None:
    plain, tricky = Device(DeviceId("x"), index="0"), Device(DeviceId("x::1"), index="1")
    rules = [Rule(Selector(indexes=("0",)), GPU, replicas=2), Rule(ANY, MIG)]
    result = make_offering(Inventory((tricky, plain)), rules)
    assert ids((tricky, plain), rules) == {GPU: ["x::0", "x::1"]}
    assert len(result.problems) == 1
    assert "device 'x::1' is left out" in result.problems[0]


@pytest.mark.parametrize(("device_id", "words"), [("x" * 64, "63 is the limit"), ("", "empty"), ("a b", "a space")])
def test_an_id_that_the_kubelet_would_not_take_leaves_out_that_device_only(device_id: str, words: str) -> None:
    result = make_offering(Inventory((Device(DeviceId(device_id)), T4)), [Rule(ANY, GPU)])
    assert [slot.id for slot in result.resources[0].slots] == ["GPU-t"]
    assert len(result.problems) == 1
    assert words in result.problems[0]


def test_an_id_that_is_too_long_only_for_its_last_replica_is_left_out() -> None:
    device = Device(DeviceId("x" * 60))
    assert make_offering(Inventory((device,)), [Rule(ANY, GPU, replicas=10)]).problems == ()
    assert len(make_offering(Inventory((device,)), [Rule(ANY, GPU, replicas=11)]).problems) == 1


def test_no_replicas_at_all_is_a_problem_not_a_crash() -> None:
    result = make_offering(Inventory((T4,)), [Rule(ANY, GPU, replicas=0)])
    assert result.resources == ()
    assert "0 replicas" in result.problems[0]


def test_good_rules_have_no_problems() -> None:
    assert (
        check_rules([Rule(Selector(indexes=("0",)), GPU), Rule(Selector(indexes=("1",)), GPU), Rule(ANY, None)]) == ()
    )


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ([Rule(ANY, GPU, replicas=0)], "rule 1: replicas is 0; it must be at least 1"),
        (
            [Rule(ANY, GPU), Rule(Selector(ids=("a",)), MIG, label="late")],
            "rule 2 (late) is never reached: rule 1 already",
        ),
        (
            [Rule(Selector(ids=("a",)), GPU), Rule(Selector(ids=("a",)), MIG)],
            "rule 2 is never reached: rule 1 matches the same",
        ),
        ([Rule(Selector(memory_min_bytes=2, memory_max_bytes=1), GPU)], "no memory is at least 2 and at most 1 bytes"),
        ([Rule(ANY, None, replicas=3)], "replicas has no effect"),
    ],
)
def test_a_contradiction_is_named(rules: list[Rule], words: str) -> None:
    problems = check_rules(rules)
    assert len(problems) == 1
    assert words in problems[0]


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        (Terms(strategy=Strategy.PACK), "another strategy than rule 1"),
        (Terms(extra=Edits(env={"A": "1"})), "another set of extra edits"),
        (Terms(per_container=2), "another number per container"),
        (Terms(memory=MemoryTerms()), "another way to share memory"),
        (Terms(assign=Assign(device="a.example/card")), "another assign setting"),
    ],
)
def test_rules_of_one_resource_agree_on_its_terms(terms: Terms, words: str) -> None:
    (problem,) = check_rules([Rule(Selector(ids=("a",)), GPU), Rule(ANY, GPU, terms=terms)])
    assert words in problem


def test_each_of_the_terms_has_a_name_for_people() -> None:
    assert set(TERM_NAMES) == set(Terms.__struct_fields__)


def slice_of(number: int, profile: str) -> Device:
    return Device(DeviceId(f"MIG-{number}"), index=f"0:{number}", attributes={"profile": profile})


def test_a_resource_can_be_named_after_what_the_backend_says():
    devices = (slice_of(0, "1g.5gb"), slice_of(1, "1g.5gb+me"), slice_of(2, "3g.20gb"))
    rule = Rule(Selector(attributes=(("profile", ("*",)),)), ResourceName("nvidia.com/mig-{profile}"))
    assert ids((*devices, T4), [rule, Rule(ANY, GPU)]) == {
        "nvidia.com/gpu": ["GPU-t"],
        "nvidia.com/mig-1g.5gb": ["MIG-0"],
        "nvidia.com/mig-1g.5gb.me": ["MIG-1"],
        "nvidia.com/mig-3g.20gb": ["MIG-2"],
    }


def test_a_device_without_the_word_that_its_name_needs_is_left_out_with_the_reason():
    offering = make_offering(Inventory((T4,)), [Rule(ANY, ResourceName("nvidia.com/mig-{profile}"))])
    assert offering.resources == ()
    assert "the device has no 'profile'" in offering.problems[0]


def test_attributes_must_be_there_and_match():
    rule = Rule(Selector(attributes=(("profile", ("1g.*", "2g.*")),)), GPU)
    assert ids((slice_of(0, "1g.5gb"), slice_of(1, "3g.20gb"), T4), [rule]) == {GPU: ["MIG-0"]}


def test_the_first_few_of_a_match_leave_the_rest_to_later_rules():
    devices = tuple(Device(DeviceId(f"d{number}"), index=str(number)) for number in (3, 1, 2, 0))
    shared = ResourceName("example.com/shared")
    assert ids(devices, [Rule(Selector(first=2), shared, replicas=2), Rule(ANY, GPU)]) == {
        shared: ["d0::0", "d0::1", "d1::0", "d1::1"],
        GPU: ["d2", "d3"],
    }


def test_devices_can_be_offered_whole_and_shared():
    shared = ResourceName("nvidia.com/gpu.shared")
    rule = Rule(ANY, GPU, also=(Rule(ANY, shared, replicas=2),))
    assert ids((T4,), [rule]) == {GPU: ["GPU-t"], shared: ["GPU-t::0", "GPU-t::1"]}
    assert not check_rules([rule])
    assert rule_of(shared, [rule]) == rule.also[0]


def test_two_ways_to_share_one_device_are_refused():
    rule = Rule(ANY, GPU, replicas=2, also=(Rule(ANY, ResourceName("a.b/c"), replicas=4),))
    assert "whole and shared" in check_rules([rule])[0]
    assert "needs a name of its own" in check_rules([Rule(ANY, GPU, also=(Rule(ANY, GPU, replicas=4),))])[0]


def test_a_name_made_from_devices_belongs_to_its_rule():
    rule = Rule(ANY, ResourceName("nvidia.com/mig-{profile}"))
    assert rule.names(ResourceName("nvidia.com/mig-1g.5gb"))
    assert not rule.names(ResourceName("nvidia.com/gpu"))
    assert not rule.names(ResourceName("nvidia.com/mig-"))
    plain = Rule(ANY, ResourceName("nvidia.com/mig-1g.5gb"))
    assert rule_of(ResourceName("nvidia.com/mig-1g.5gb"), [rule, plain]) == plain


def test_a_device_may_name_its_slots_which_are_unique_in_each_resource():
    both = (
        Device("d0", attributes={"kind": "0"}, slots=("0", "1")),
        Device("d1", attributes={"kind": "1"}, slots=("0",)),
    )
    two = make_offering(Inventory(both), [Rule(resource=ResourceName("a.example/{kind}"))])
    assert {made.name: [slot.id for slot in made.slots] for made in two.resources} == {
        "a.example/0": ["0", "1"],
        "a.example/1": ["0"],
    }
    devices = Device("x", slots=("0",)), Device("y", slots=("0",)), Device("z", slots=("z" * 64,))
    clash = make_offering(Inventory(devices), [Rule(resource=ResourceName("a.example/one"))])
    assert [slot.device for made in clash.resources for slot in made.slots] == ["x"]
    assert "device 'x' has it already" in clash.problems[0]
    assert "1 to 63 characters" in clash.problems[1]
    shared = make_offering(Inventory(devices[:1]), [Rule(resource=ResourceName("a.example/one"), replicas=2)])
    assert "its backend names its 1 slots; leave out replicas" in shared.problems[0]


def _cut(number: int, profile: str) -> Device:
    return Device(DeviceId(f"gpu{number}"), index=str(number), attributes={"profile": profile} if profile else {})


UNIFORM = Rule(ANY, GPU, terms=Terms(uniform="profile"))


def test_devices_that_must_be_alike_and_are_not_are_not_offered_at_all():
    made = make_offering(Inventory((_cut(0, "spx"), _cut(1, "cpx"), _cut(2, "cpx"))), [UNIFORM])
    why = (
        "nvidia.com/gpu is not offered: its devices differ in profile (2 with cpx, 1 with spx). "
        "Make them alike, or give each kind a resource of its own"
    )
    assert (made.resources, made.refused, made.needed, made.problems) == ((), {GPU: why}, (why,), (why,))


@pytest.mark.parametrize("profiles", [("cpx", "cpx"), ("", ""), ("cpx", "")])
def test_devices_that_lack_what_they_must_have_alike_do_not_differ(profiles: tuple[str, str]):
    made = make_offering(Inventory(tuple(_cut(n, profile) for n, profile in enumerate(profiles))), [UNIFORM])
    assert [len(resource.slots) for resource in made.resources] == [2]
    assert not made.refused

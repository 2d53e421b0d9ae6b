"""Pods say anything: none of it breaks the matching, and no pod is served by what cannot be read."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.policy.scheduled.pods import match

from fairlead.model.assign import Assign
from fairlead.model.names import DeviceId, ResourceName
from fairlead.model.pod import Container, Pod
from fairlead.policy.scheduled.allocations import Draft
from fairlead.policy.scheduled.match import Match
from fairlead.policy.scheduled.pending import PendingPod, read_pod

RESOURCE = ResourceName("example.com/mem")
NAMES = {"0": DeviceId("GPU-a"), "1": DeviceId("GPU-b")}
DEVICE, EACH, TIME, ASSIGNED, NEEDED = "device", "each", "time", "assigned", "needed"

ODD = (
    *("0", "1", "0,1", " 0 ", "0,,1", ",", "2", "-1", "\u0660", "false", "true", "", "\x00", "\x1b[2J\n", "x" * 9999),
    *('{"0":{"1":4}}', '{"x":{}}', '{"0":null}', '{"0":5}', '{"0":{"7":1}}', '"a"', "[1]", "null", "{", "NaN"),
    *("[" * 4000, '{"0":{"0":1e999}}', f'{{"{"9" * 4000}":{{}}}}', '{"\\ud800":{"0":1}}', '{"0":{"\\ud800":1}}'),
)
texts = st.one_of(st.sampled_from(ODD), st.text(max_size=12), st.integers(-3, 10**22).map(str))
amounts = st.sampled_from(
    ["1", "2", "3", "0", "-1", "1e0", "9" * 60, "1e999", "-1e999", "4Gi", "0.5", "", "NaN", "1500m", "9" * 400]
)
containers = st.lists(
    st.builds(
        lambda name, text, sidecar: Container(name, {RESOURCE: text}, sidecar=sidecar),
        st.sampled_from("abc"),
        amounts,
        st.booleans(),
    ),
    max_size=3,
).map(tuple)
pods = st.builds(
    Pod,
    uid=st.sampled_from("pqrs"),
    namespace=st.just("default"),
    name=st.sampled_from(["p", "n" * 253]),
    created_s=st.sampled_from([0.0, -6.2e10, 2.5e11]),
    deleting=st.booleans(),
    annotations=st.fixed_dictionaries({}, optional=dict.fromkeys((DEVICE, EACH, TIME, ASSIGNED, NEEDED), texts)),
    init_containers=containers,
    containers=containers,
)
assigns = st.builds(
    Assign,
    device=st.just(DEVICE),
    per_container=st.sampled_from(["", EACH]),
    time=st.sampled_from(["", TIME]),
    time_required=st.booleans(),
    assigned=st.sampled_from(["", ASSIGNED]),
    unassigned=st.sampled_from([frozenset({"false"}), frozenset({"false", ""})]),
    needs=st.sampled_from([(), (NEEDED,)]),
)


def seekers_of(some: list[Pod], assign: Assign) -> list[PendingPod]:
    found = (read_pod(pod, RESOURCE, assign, NAMES) for pod in some)
    return sorted((pending for pending in found if pending is not None), key=lambda pending: pending.order)


@settings(deadline=None, max_examples=100)
@given(st.lists(pods, max_size=4), assigns, st.integers(0, 4))
def test_nobody_is_served_by_what_cannot_be_read(some: list[Pod], assign: Assign, amount: int):
    pending_pods = seekers_of(some, assign)
    found = match(pending_pods, Draft(), amount)
    if isinstance(found, Match):
        assert found.pending.fault is None
        assert found.pending.open
        assert found.request.amount == amount > 0
        assert set(found.request.devices) <= set(NAMES.values())
        # The annotation that counts by container numbers no init containers: theirs may be any.
        init = found.request.container in {one.name for one in found.pending.pod.init_containers}
        assert found.request.devices or (init and assign.per_container)
    else:
        assert len(found.reason.encode()) < 4000  # it ends in an error that the kubelet writes on the pod


@settings(deadline=None, max_examples=100)
@given(pods, assigns)
def test_a_fault_is_short_and_plain_and_amounts_are_whole(pod: Pod, assign: Assign):
    pending = read_pod(pod, RESOURCE, assign, NAMES)
    if pending is None:
        return
    assert all(0 < request.amount < 2**63 for request in pending.requests)
    if pending.fault is not None:
        assert pending.fault.text.isprintable()
        assert len(pending.fault.text) < 300

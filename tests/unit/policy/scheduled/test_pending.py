"""What a pod asks for next, as the kubelet will."""

from __future__ import annotations

import pytest
from tests.unit.policy.scheduled.pods import match

from fairlead.model.assign import Assign
from fairlead.model.names import DeviceId, ResourceName
from fairlead.model.pod import Container, Pod
from fairlead.policy.scheduled.allocations import Draft
from fairlead.policy.scheduled.match import Match, Miss
from fairlead.policy.scheduled.pending import PendingPod, read_pod

RESOURCE = ResourceName("example.com/mem")
CARDS = {"0": DeviceId("GPU-a"), "1": DeviceId("GPU-b")}


def pending(name: str, card: str, phase: str) -> PendingPod:
    containers = (Container("main", {RESOURCE: "4"}),)
    pod = Pod(uid=name, namespace="d", name=name, phase=phase, annotations={"card": card}, containers=containers)
    found = read_pod(pod, RESOURCE, Assign(device="card"), CARDS)
    assert found is not None
    return found


@pytest.mark.parametrize("phase", ["Running", "Unknown"])
def test_a_pod_that_has_begun_to_run_is_not_taken_for_one_that_is_admitted(phase: str):
    older, newer = pending("a", "0", phase), pending("b", "1", "Pending")
    found = match([older, newer], Draft(), 4)
    assert isinstance(found, Match)
    assert (found.pending.uid, found.request.devices) == ("b", ("GPU-b",))
    assert isinstance(match([older], Draft(), 4), Miss)

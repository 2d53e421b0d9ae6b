"""What a pod asks for next, as the kubelet will."""

from __future__ import annotations

import pytest

from fairlead.model.assign import Assign
from fairlead.model.names import DeviceId, ResourceName
from fairlead.model.pod import Container, Pod
from fairlead.policy.assign import Match, Miss, match
from fairlead.policy.claims import Claims
from fairlead.policy.promise import Seeker, read_pod

RESOURCE = ResourceName("example.com/mem")
CARDS = {"0": DeviceId("GPU-a"), "1": DeviceId("GPU-b")}


def seeker(name: str, card: str, phase: str) -> Seeker:
    containers = (Container("main", {RESOURCE: "4"}),)
    pod = Pod(uid=name, namespace="d", name=name, phase=phase, annotations={"card": card}, containers=containers)
    found = read_pod(pod, RESOURCE, Assign(device="card"), CARDS)
    assert found is not None
    return found


@pytest.mark.parametrize("phase", ["Running", "Unknown"])
def test_a_pod_that_has_begun_to_run_is_not_taken_for_one_that_is_admitted(phase: str):
    older, newer = seeker("a", "0", phase), seeker("b", "1", "Pending")
    found = match([older, newer], Claims(), 4)
    assert isinstance(found, Match)
    assert (found.seeker.uid, found.want.devices) == ("b", ("GPU-b",))
    assert isinstance(match([older], Claims(), 4), Miss)

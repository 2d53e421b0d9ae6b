"""Who holds what, out of the kubelet's answer."""

from __future__ import annotations

from fairlead.fronts.podresources import holdings_of
from fairlead.model.holdings import Holder
from fairlead.wire import podresources as pr

GPU = "example.com/gpu"


def pod(name: str, **containers: tuple[str, ...]) -> pr.PodResources:
    """Each container with the ids that it holds, an entry for each of them as the kubelet makes it."""
    return pr.PodResources(
        name=name,
        namespace="default",
        containers=tuple(
            pr.ContainerResources(
                name=container, devices=tuple(pr.ContainerDevices(resource_name=GPU, device_ids=(one,)) for one in ids)
            )
            for container, ids in containers.items()
        ),
    )


def test_each_slot_has_its_holder():
    answer = pr.ListPodResourcesResponse((pod("p", main=("a", "b")), pod("q", main=("c",))))
    found = holdings_of(answer)
    assert {slot: str(holder) for (_, slot), holder in found.by_slot.items()} == {
        "a": "default/p/main",
        "b": "default/p/main",
        "c": "default/q/main",
    }
    assert found.twice == {}


def test_a_slot_of_two_numa_nodes_or_of_two_containers_of_a_pod_is_held_once():
    answer = pr.ListPodResourcesResponse((pod("p", init=("a",), main=("a", "a")),))
    assert holdings_of(answer).twice == {}


def test_a_slot_that_two_pods_hold_is_held_twice():
    answer = pr.ListPodResourcesResponse((pod("p", main=("a",)), pod("q", main=("a", "b"))))
    assert holdings_of(answer).twice == {(GPU, "a"): Holder("default", "p", "main")}

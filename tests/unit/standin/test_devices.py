import pytest

from fairlead.standin.devices import Device, Endpoint, NodeDevices

R = "example.com/gpu"


@pytest.fixture
def table() -> NodeDevices:
    return NodeDevices(endpoints={R: Endpoint(plugin=object(), options=None)})


def test_each_list_replaces_the_one_before(table: NodeDevices) -> None:
    table.replace(R, [Device("a"), Device("b")])
    table.replace(R, [Device("c")])
    assert table.health(R) == {"c": "Healthy"}


@pytest.mark.parametrize("word", ["healthy", "", "Unknown", "HEALTHY", "Healthy ", "Unhealthy"])
def test_only_the_exact_word_is_healthy(table: NodeDevices, word: str) -> None:
    table.replace(R, [Device("a", word)])
    assert (table.capacity(), table.allocatable()) == ({R: 1}, {R: 0})


def test_an_id_listed_in_both_states_counts_twice(table: NodeDevices) -> None:
    table.replace(R, [Device("a", "Healthy"), Device("a", "Unhealthy")])
    assert (table.capacity(), table.allocatable()) == ({R: 2}, {R: 1})


def test_an_empty_list_is_a_resource_with_nothing(table: NodeDevices) -> None:
    table.replace(R, [])
    assert (table.capacity(), table.allocatable()) == ({R: 0}, {R: 0})


def test_a_plugin_that_stops_takes_health_but_not_capacity(table: NodeDevices) -> None:
    table.replace(R, [Device("a"), Device("b", "Unhealthy")])
    table.stop(R, now_s=100)
    assert (table.capacity(), table.allocatable()) == ({R: 2}, {R: 0})


def test_a_plugin_that_stops_before_its_first_list_leaves_an_empty_resource(table: NodeDevices) -> None:
    table.stop(R, now_s=100)
    assert (table.capacity(), table.allocatable()) == ({R: 0}, {R: 0})


def test_a_resource_expires_strictly_after_the_grace_period(table: NodeDevices) -> None:
    table.replace(R, [Device("a")])
    table.stop(R, now_s=100)
    assert table.expire(now_s=400, grace_s=300) == ()
    assert table.expire(now_s=400.1, grace_s=300) == (R,)
    assert (table.healthy, table.unhealthy, table.endpoints) == ({}, {}, {})
    assert table.expire(now_s=500, grace_s=300) == ()


def test_a_resource_from_the_checkpoint_is_known_empty_and_on_its_way_out() -> None:
    table = NodeDevices()
    table.restore([R], now_s=100)
    assert table.knows(R)
    assert (table.capacity(), table.allocatable()) == ({R: 0}, {R: 0})
    assert table.expire(now_s=401, grace_s=300) == (R,)


def test_a_resource_is_topology_aware_when_any_device_has_a_node(table: NodeDevices) -> None:
    table.replace(R, [Device("a")])
    assert not table.is_topology_aware(R)
    table.replace(R, [Device("a"), Device("b", nodes=(1,))])
    assert table.is_topology_aware(R)

"""Links are symmetric whatever was reported; conditions do not confuse no data with bad news."""

from hypothesis import given
from hypothesis import strategies as st

from fairlead.model.device import Device
from fairlead.model.health import HEALTHY, Cause, CauseKind, Condition, Health
from fairlead.model.inventory import EMPTY, NO_LINKS, Conditions, Inventory, Links
from fairlead.model.names import DeviceId

A, B, C = (DeviceId(name) for name in "abc")


def test_a_link_reported_from_one_side_counts_for_both() -> None:
    links = Links({(B, A): 7})
    assert (links.between(A, B), links.between(B, A), links.between(A, C)) == (7, 7, 0)
    assert list(links.items()) == [((A, B), 7)]


def test_two_reports_of_one_link_agree_on_the_better() -> None:
    assert Links({(A, B): 3, (B, A): 9}) == Links({(A, B): 9})
    assert Links({(A, B): 9, (B, A): 3}) == Links({(A, B): 9})


def test_a_device_is_not_linked_to_itself_and_no_score_is_no_link() -> None:
    assert not Links({(A, A): 5, (A, B): 0})
    assert not NO_LINKS
    assert Links({(A, B): 1})


def test_links_of_two_backends_join() -> None:
    both = Links({(A, B): 1}) | Links({(B, C): 2})
    assert (both.between(A, B), both.between(C, B)) == (1, 2)
    one = Links({(A, B): 1})
    assert (one | NO_LINKS) is one


def test_links_compare_and_hash_by_value() -> None:
    one, same, other = Links({(A, B): 1}), Links({(B, A): 1}), Links({(A, B): 2})
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert one != "links"
    assert repr(one) == "Links({('a', 'b'): 1})"


IDS = st.sampled_from([A, B, C])


@given(st.dictionaries(st.tuples(IDS, IDS), st.integers(0, 9)))
def test_links_are_symmetric(scores: dict[tuple[DeviceId, DeviceId], int]) -> None:
    links = Links(scores)
    for one in (A, B, C):
        assert links.between(one, one) == 0
        for other in (A, B, C):
            assert links.between(one, other) == links.between(other, one)


def test_no_data_is_healthy() -> None:
    sick = Condition(Health.UNHEALTHY, Cause("x", CauseKind.PERMANENT), 3.0)
    conditions = Conditions({A: sick})
    assert conditions.of(A) is sick
    assert conditions.of(B) is HEALTHY
    assert Inventory((Device(A), Device(B))).by_id[B].id == B
    assert EMPTY.by_id == {}

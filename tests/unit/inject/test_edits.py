"""What a container gets: parts are merged, contradictions are refused, templates are rendered."""

import pytest

from fairlead.inject.merge import merge
from fairlead.inject.templates import render
from fairlead.model.device import Device, DeviceNode
from fairlead.model.edits import NO_EDITS, Edits, Grant, Mount
from fairlead.model.errors import EditConflict
from fairlead.model.names import DeviceId, ResourceName, SlotId


def test_nothing_merges_to_nothing():
    assert merge([]) is NO_EDITS
    assert not merge([Edits(), Edits()])


def test_a_lone_part_is_passed_through():
    part = Edits(env={"A": "1"})
    assert merge([NO_EDITS, part]) == part


def test_equal_parts_collapse_and_order_is_kept():
    node = DeviceNode("/dev/a")
    mount = Mount("/usr/lib/x", "/x")
    one = Edits({"A": "1"}, (node,), (mount,), {"k": "v"}, ("v/c=1",))
    other = Edits({"A": "1", "B": "2"}, (DeviceNode("/dev/b"), node), (mount,), {"k": "v"}, ("v/c=0", "v/c=1"))
    assert merge([one, other]) == Edits(
        {"A": "1", "B": "2"}, (node, DeviceNode("/dev/b")), (mount,), {"k": "v"}, ("v/c=1", "v/c=0")
    )


def test_a_device_listed_twice_by_one_part_appears_once():
    assert merge([Edits(nodes=(DeviceNode("/dev/a"), DeviceNode("/dev/a")))]).nodes == (DeviceNode("/dev/a"),)


@pytest.mark.parametrize(
    ("one", "other", "named"),
    [
        (Edits(env={"A": "1"}), Edits(env={"A": "2"}), "environment variable 'A'"),
        (Edits(annotations={"a/b": "1"}), Edits(annotations={"a/b": "2"}), "annotation 'a/b'"),
        (Edits(nodes=(DeviceNode("/dev/a", "/dev/x"),)), Edits(nodes=(DeviceNode("/dev/b", "/dev/x"),)), "'/dev/x'"),
        (Edits(mounts=(Mount("/a", "/m"),)), Edits(mounts=(Mount("/a", "/m", read_only=False),)), "mount '/m'"),
    ],
)
def test_a_contradiction_is_an_error_that_names_it(one, other, named):
    with pytest.raises(EditConflict, match=named):
        merge([one, other])


GRANT = Grant(
    ResourceName("example.com/gpu"),
    (SlotId("a::0"), SlotId("b::1")),
    (Device(DeviceId("a"), index="0"), Device(DeviceId("b"), index="1")),
)


def test_words_are_filled_from_the_grant():
    edits = Edits(
        env={"IDS": "{ids}", "IDX": "{indexes}", "ALL": "{resource}: {count} of {slots}"}, annotations={"x": "{ids}"}
    )
    assert render(edits, GRANT) == Edits(
        env={"IDS": "a,b", "IDX": "0,1", "ALL": "example.com/gpu: 2 of a::0,b::1"}, annotations={"x": "a,b"}
    )


def test_other_braces_stay():
    edits = Edits(env={"JSON": '{"a": {}}', "PLAIN": "x", "ODD": "{nope}"})
    assert render(edits, GRANT) == edits


def test_edits_without_text_are_not_copied():
    edits = Edits(nodes=(DeviceNode("/dev/a"),))
    assert render(edits, GRANT) is edits


MIB = 1 << 20
SHARE = Grant(
    ResourceName("example.com/gpu-memory"),
    (SlotId("a-0"), SlotId("a-1"), SlotId("a-2"), SlotId("b-0")),
    (Device(DeviceId("a"), index="0", memory_bytes=81_559 * MIB), Device(DeviceId("b"), memory_bytes=4096 * MIB)),
    1024 * MIB,
    (3, 1),
)


def test_shares_of_memory_are_told_per_device():
    edits = Edits(env={"MIB": "{memoryMib}", "OF": "{memoryPercent}", "UNITS": "{units}", "WHOSE": "{ids}"})
    assert render(edits, SHARE).env == {"MIB": "3072,1024", "OF": "3,25", "UNITS": "3,1", "WHOSE": "a,b"}


def test_the_memory_of_all_devices_together():
    assert render(Edits(env={"MIB": "{memoryTotalMib}"}), SHARE).env == {"MIB": "4096"}


def test_a_variable_may_be_set_once_per_device():
    edits = Edits(env={"LIMIT_{n}": "{memoryMib}m of {ids}, {slots}", "{resource}_{n}": "{count}"})
    assert render(edits, SHARE).env == {
        "LIMIT_0": "3072m of a, a-0,a-1,a-2",
        "LIMIT_1": "1024m of b, b-0",
        "EXAMPLE_COM_GPU_MEMORY_0": "3",
        "EXAMPLE_COM_GPU_MEMORY_1": "1",
    }


def test_a_whole_device_is_a_hundred_percent_and_a_crumb_is_one():
    device = Device(DeviceId("a"), memory_bytes=81_559 * MIB)
    for units, percent in ((5097, "100"), (1, "1"), (2548, "49")):
        grant = Grant(ResourceName("a.b/c"), (), (device,), 16 * MIB, (units,))
        assert render(Edits(env={"P": "{memoryPercent}"}), grant).env == {"P": percent}


def test_words_of_memory_stay_as_they_are_where_there_is_none():
    assert render(Edits(env={"X": "{memoryMib}"}), GRANT).env == {"X": "{memoryMib}"}

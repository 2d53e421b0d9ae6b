import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.standin import checkpoint
from fairlead.standin.checkpoint import Checkpoint, Corrupt, Entry

# Written by a real kubelet.
VECTORS = [
    '{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":3467439661}',
    '{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{"example.com/gpu":["a","b"]}},"Checksum":1968921692}',
    (
        '{"Data":{"PodDeviceEntries":[{"PodUID":"pod1","ContainerName":"con1","ResourceName":"example.com/gpu",'
        '"DeviceIDs":{"-1":["b"],"0":["a"]},"AllocResp":"CgNBQg=="}],'
        '"RegisteredDevices":{"example.com/gpu":["a","b"],"example.com/nil":null}},"Checksum":3442519032}'
    ),
]

names = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=8)
ids = st.lists(names, max_size=3)
entries = st.builds(
    Entry,
    uid=names,
    container=names,
    resource=names,
    by_node=st.dictionaries(st.integers(-1, 20), ids.map(tuple), max_size=3),
    answer=st.binary(max_size=8),
)
checkpoints = st.builds(
    Checkpoint,
    entries=st.none() | st.lists(entries, max_size=3),
    registered=st.dictionaries(names, st.none() | ids, max_size=3),
)


@pytest.mark.parametrize("text", VECTORS)
def test_a_real_kubelets_file_is_read_and_written_back_byte_for_byte(text: str) -> None:
    assert checkpoint.encode(checkpoint.decode(text)) == text


@given(checkpoints)
def test_what_is_written_is_what_is_read(data: Checkpoint) -> None:
    assert checkpoint.decode(checkpoint.encode(data)) == data


def test_numa_nodes_are_summed_in_numeric_order_but_written_in_text_order() -> None:
    by_node = {2: ("b",), 10: ("c",), -1: ("a",)}
    data = Checkpoint([Entry("u", "c", "r", by_node, b"")])
    assert "map[-1:[a] 2:[b] 10:[c]]" in checkpoint._render(data)
    written = json.loads(checkpoint.encode(data))["Data"]["PodDeviceEntries"][0]["DeviceIDs"]
    assert list(written) == ["-1", "10", "2"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not json",
        "[]",
        '{"Data":null,"Checksum":1}',
        VECTORS[1].replace("1968921692", "1968921693"),
        VECTORS[1].replace('"a"', '"z"'),
        VECTORS[2].replace("CgNBQg==", "!"),
    ],
)
def test_a_damaged_file_is_named_as_such(text: str) -> None:
    with pytest.raises(Corrupt, match="checkpoint"):
        checkpoint.decode(text)


def test_writing_replaces_the_file_and_leaves_nothing_else_behind(tmp_path: Path) -> None:
    checkpoint.write(tmp_path, Checkpoint(registered={"a.b/c": ["x"]}))
    checkpoint.write(tmp_path, Checkpoint(registered={"a.b/c": ["y"]}))
    assert [entry.name for entry in tmp_path.iterdir()] == ["kubelet_internal_checkpoint"]
    assert checkpoint.read(tmp_path) == Checkpoint(None, {"a.b/c": ["y"]})


def test_no_file_is_no_checkpoint(tmp_path: Path) -> None:
    assert checkpoint.read(tmp_path) is None


def test_bytes_that_are_no_text_are_damage(tmp_path: Path) -> None:
    (tmp_path / checkpoint.NAME).write_bytes(b"\xff\xfe")
    with pytest.raises(Corrupt):
        checkpoint.read(tmp_path)

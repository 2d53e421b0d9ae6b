"""The kubelet's checkpoint: what it proves of ids, and what it does not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fairlead.fronts import checkpoint
from fairlead.fronts.checkpoint import NAME, read_checkpoint
from fairlead.model.names import ResourceName, SlotId
from fairlead.standin import checkpoint as kubelets

GPU = ResourceName("example.com/gpu")
# As a kubelet 1.36 wrote it.
REAL = (
    '{"Data":{"PodDeviceEntries":[{"PodUID":"pod1","ContainerName":"con1","ResourceName":"example.com/gpu",'
    '"DeviceIDs":{"-1":["b"],"0":["a"]},"AllocResp":"CgNBQg=="}],"RegisteredDevices":{"example.com/gpu":["a","c"],'
    '"example.com/nil":null}},"Checksum":3442519032}'
)


def write(directory: Path, text: str) -> None:
    (directory / NAME).write_text(text)


def free(directory: Path, slot: str, resource: str = GPU) -> bool:
    found = read_checkpoint(directory)
    assert found is not None
    return found.is_free(ResourceName(resource), SlotId(slot))


def test_an_id_is_free_that_no_pod_holds_and_none_can_get(tmp_path: Path) -> None:
    write(tmp_path, REAL)
    assert not free(tmp_path, "a")  # held, and healthy
    assert not free(tmp_path, "b")  # held
    assert not free(tmp_path, "c")  # the kubelet may give it away yet
    assert free(tmp_path, "d")
    assert free(tmp_path, "d", "example.com/nil")
    assert not free(tmp_path, "d", "example.com/other")  # the kubelet has no list of it


def test_what_the_stand_in_writes_is_read(tmp_path: Path) -> None:
    entry = kubelets.Entry("uid", "main", GPU, {-1: ["a"]}, b"")
    write(tmp_path, kubelets.encode(kubelets.Checkpoint([entry], {GPU: ["b"]})))
    assert [free(tmp_path, slot) for slot in "abc"] == [False, False, True]
    write(tmp_path, kubelets.encode(kubelets.Checkpoint(None, {GPU: []})))
    assert free(tmp_path, "a")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"Data": {}}', '{"Data": {"PodDeviceEntries": 7}}'])
def test_a_file_that_is_not_as_expected_proves_nothing(tmp_path: Path, text: str) -> None:
    write(tmp_path, text)
    assert read_checkpoint(tmp_path) is None


def test_no_file_a_fifo_or_one_that_is_too_large_proves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read_checkpoint(tmp_path) is None
    os.mkfifo(tmp_path / NAME)
    assert read_checkpoint(tmp_path) is None
    (tmp_path / NAME).unlink()
    write(tmp_path, REAL)
    monkeypatch.setattr(checkpoint, "MAX_BYTES", len(REAL) - 1)
    assert read_checkpoint(tmp_path) is None

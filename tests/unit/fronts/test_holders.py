"""Who holds what: what the kubelet's checkpoint says of units, and what is not known."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.clock import FakeClock

from fairlead.engine.listing import Listing
from fairlead.fronts.checkpoint import NAME
from fairlead.fronts.holders import INTERVAL_S, Holders, missing_mount
from fairlead.model.holdings import Holder, Holdings, Unknown
from fairlead.model.names import ResourceName, SlotId
from fairlead.standin.checkpoint import Checkpoint, Entry, encode

GPU = ResourceName("example.com/gpu")
BEFORE, AFTER = (1, 1, 1), (1, 2, 2)  # the sockets of two kubelets


async def on_disk(directory: Path) -> frozenset[ResourceName] | None:
    holders = Holders(FakeClock(), directory)
    try:
        await holders.read(checkpoint=True)
        return holders.on_disk()
    finally:
        holders.close()


async def test_the_checkpoint_names_resources_that_pods_hold(tmp_path: Path):
    (tmp_path / NAME).write_text(encode(Checkpoint([Entry("uid", "main", GPU, {-1: ["a"]}, b"")], {GPU: ["a"]})))
    assert await on_disk(tmp_path) == frozenset({GPU})


async def test_without_a_checkpoint_no_pod_holds_anything(tmp_path: Path):
    assert await on_disk(tmp_path) == frozenset()


@pytest.mark.parametrize("text", ["", "{", '{"Data": {"PodDeviceEntries": 7}}'])
async def test_a_checkpoint_that_cannot_be_read_may_name_any_pod(text: str, tmp_path: Path):
    (tmp_path / NAME).write_text(text)
    assert await on_disk(tmp_path) is None


def answer(*slots: str) -> Holdings:
    return Holdings({(GPU, SlotId(slot)): Holder("default", "pod", "main") for slot in slots})


def held(holders: Holders) -> set[str]:
    assert holders.held is not None
    return {slot for slots in holders.held.values() for slot in slots}


async def write_down(directory: Path, holders: Holders, *slots: str) -> None:
    entries = [Entry("uid", "main", GPU, {-1: list(slots)}, b"")] if slots else []
    (directory / NAME).write_text(encode(Checkpoint(entries, {GPU: list(slots)})))
    await holders.read_checkpoint()


@pytest.fixture
def holders(tmp_path: Path) -> Iterator[Holders]:
    made = Holders(FakeClock(), tmp_path)
    yield made
    made.close()


async def test_a_kubelet_that_has_just_started_does_not_release_what_its_checkpoint_names(
    holders: Holders, tmp_path: Path
):
    holders.take(answer("a", "b"), BEFORE)
    holders.take(answer(), AFTER)
    assert held(holders) == {"a", "b"}
    await write_down(tmp_path, holders, "a")
    assert held(holders) == {"a"}
    holders.take(answer(), AFTER)
    assert held(holders) == {"a"}  # in doubt as long as it is written down
    await write_down(tmp_path, holders)
    assert held(holders) == set()


async def test_what_a_new_kubelet_has_named_is_released_by_its_word_alone(holders: Holders):
    holders.take(answer("a"), BEFORE)
    holders.take(answer(), AFTER)
    holders.take(answer("a"), AFTER)
    holders.take(answer(), AFTER)
    assert held(holders) == set()


async def test_the_same_kubelet_is_believed_at_once(holders: Holders):
    holders.take(answer("a"), BEFORE)
    holders.take(answer(), BEFORE)
    assert held(holders) == set()


async def test_a_silent_kubelet_between_two_does_not_hide_the_restart(holders: Holders):
    holders.take(answer("a"), BEFORE)
    holders.take(Unknown("gone"), None)
    assert holders.held is None
    holders.take(answer(), AFTER)
    assert held(holders) == {"a"}


async def test_a_slot_that_left_is_asked_about_at_once_and_a_silent_kubelet_no_oftener_than_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    clock, asked = FakeClock(), list[float]()
    holders = Holders(clock, tmp_path)

    async def read() -> None:
        holders.asked_s = clock.monotonic()
        asked.append(holders.asked_s)

    monkeypatch.setattr(holders, "read", read)
    listing = Listing()
    monkeypatch.setattr(Listing, "waiting", True)
    holders.take(answer(), BEFORE)
    follow = asyncio.create_task(holders.follow(listing, lambda: None, lambda _: None))
    await clock.advance(INTERVAL_S + 1)
    began_s = clock.monotonic()
    listing.unsure_s = began_s
    holders.wake()
    await clock.advance(INTERVAL_S * 3)
    assert [round(at_s - began_s, 1) for at_s in asked] == [-1.0, 0.0, INTERVAL_S, 2 * INTERVAL_S, 3 * INTERVAL_S]
    follow.cancel()


def test_a_missing_socket_is_cured_where_the_daemon_runs(tmp_path: Path):
    socket = tmp_path / "pod-resources/kubelet.sock"
    assert "Add to the pod: volumes: [{name: pod-resources, hostPath:" in missing_mount(str(socket), in_pod=True)
    on_host = missing_mount(str(socket), in_pod=False)
    assert "the pod:" not in on_host
    assert "set kubelet.podResources (--pod-resources)" in on_host
    socket.parent.mkdir()
    assert missing_mount(str(socket), in_pod=True) == missing_mount(str(socket), in_pod=False) == ""
    assert missing_mount("") == ""

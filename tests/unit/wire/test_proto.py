"""The codec against google.protobuf: the same bytes mean the same message, and the same bytes are refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from google.protobuf.message import DecodeError as TheirDecodeError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.unit.wire import podresources_whole as pr
from tests.unit.wire.messages import IDS, PAIRS, to_theirs, values

from fairlead.wire import deviceplugin as dp
from fairlead.wire.proto import DecodeError, EncodeError, decode, encode, field, message
from fairlead.wire.varint import write_varint

# Forty messages share the work; some three hundred examples of each kind are seen in all.
few = settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
pairs = pytest.mark.parametrize(("ours", "theirs"), PAIRS, ids=IDS)


@message
class Zoo:
    """The kinds no kubelet message uses yet."""

    raw: bytes = field(1)
    raws: tuple[bytes, ...] = field(2)
    flags: tuple[bool, ...] = field(3)
    far: int = field(300)
    texts: Mapping[str, str] = field(5)


def unknown_fields(taken: set[int]) -> st.SearchStrategy[bytes]:
    """Well-formed fields with numbers the message does not use, groups among them."""
    number = st.integers(1, (1 << 29) - 1).filter(lambda n: n not in taken)

    def varint(n: int, value: int) -> bytes:
        return write_varint(n << 3) + write_varint(value)

    def fixed(n: int, kind: int, data: bytes) -> bytes:
        return write_varint(n << 3 | kind) + data

    def sized(n: int, data: bytes) -> bytes:
        return write_varint(n << 3 | 2) + write_varint(len(data)) + data

    def group(n: int, inside: list[bytes]) -> bytes:
        return write_varint(n << 3 | 3) + b"".join(inside) + write_varint(n << 3 | 4)

    flat = (
        st.builds(varint, number, st.integers(0, (1 << 64) - 1))
        | st.builds(fixed, number, st.just(1), st.binary(min_size=8, max_size=8))
        | st.builds(fixed, number, st.just(5), st.binary(min_size=4, max_size=4))
        | st.builds(sized, number, st.binary(max_size=200))
    )
    return st.recursive(flat, lambda inner: st.builds(group, number, st.lists(inner, max_size=3)), max_leaves=4)


@pairs
@few
@given(data=st.data())
def test_bytes_mean_the_same_to_both(ours: type, theirs: Any, data: st.DataObject) -> None:
    msg = data.draw(values(ours))
    theirs_msg = to_theirs(msg, theirs)
    assert theirs.FromString(encode(msg)) == theirs_msg
    assert decode(ours, theirs_msg.SerializeToString()) == msg
    assert decode(ours, memoryview(encode(msg))) == msg


@pairs
@few
@given(data=st.data())
def test_unknown_fields_are_skipped(ours: type, theirs: Any, data: st.DataObject) -> None:
    msg = data.draw(values(ours))
    extra = data.draw(unknown_fields(set(theirs.DESCRIPTOR.fields_by_number)))
    assert decode(ours, extra + encode(msg) + extra) == msg


@pairs
@few
@given(data=st.data())
def test_two_encodings_in_a_row_merge(ours: type, theirs: Any, data: st.DataObject) -> None:
    one, two = data.draw(values(ours)), data.draw(values(ours))
    both = encode(one) + encode(two)
    assert decode(ours, both) == decode(ours, theirs.FromString(both).SerializeToString())


@pairs
@few
@given(data=st.data())
def test_damaged_bytes_are_judged_alike(ours: type, theirs: Any, data: st.DataObject) -> None:
    raw = bytearray(data.draw(st.binary(max_size=40) | values(ours).map(encode)))
    for _ in range(data.draw(st.integers(0, 3))):
        if raw:
            raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(raw[: data.draw(st.integers(0, len(raw)))])
    try:
        expected = theirs.FromString(damaged)
    except TheirDecodeError:
        with pytest.raises(DecodeError):
            decode(ours, damaged)
        return
    try:
        decode(ours, damaged)
    except DecodeError as error:
        # google.protobuf for Python lets field number zero pass, and bits of a varint beyond the 64th. The language
        # forbids both, and Go refuses them as we do.
        assert "tag" in str(error) or "longer than 64 bits" in str(error)
    else:
        assert decode(ours, damaged) == decode(ours, expected.SerializeToString())


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\x0a", id="length missing"),
        pytest.param(b"\x0a\x05ab", id="string too short"),
        pytest.param(b"\x0a\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", id="varint of eleven bytes"),
        pytest.param(b"\x78\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", id="varint over 64 bits"),
        pytest.param(b"\x0a\x02\xc3\x28", id="not UTF-8"),
        pytest.param(b"\x00\x00", id="field number zero"),
        pytest.param(b"\xf8\xff\xff\xff\x7f\x00", id="field number too large"),
        pytest.param(b"\x7c", id="group end without a start"),
        pytest.param(b"\x7b\x74", id="group end with the wrong number"),
        pytest.param(b"\x7b", id="group without an end"),
        pytest.param(b"\x7b" * 101 + b"\x7c" * 101, id="groups too deep"),
        pytest.param(b"\x7e", id="wire type 6"),
        pytest.param(b"\x1a\x03\x0a\x02\x08", id="inner message runs past its own end"),
        pytest.param(b"\x1a\x02\x0a\x80\x00", id="inner length runs past its own end"),
    ],
)
def test_malformed_devices_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        decode(dp.Device, data)


def test_map_entries_are_judged_like_messages() -> None:
    for entry in (b"\x0a\x05a", b"\x0a\x01a\x12\x09b", b"\x18", b"\x18\x80"):
        with pytest.raises(DecodeError):
            decode(dp.ContainerAllocateResponse, b"\x0a" + bytes((len(entry),)) + entry + b"\x22\x00")
    assert decode(dp.ContainerAllocateResponse, b"\x0a\x05\x18\x01\x12\x01b").envs == {"": "b"}


def test_repeated_numbers_are_read_packed_and_one_by_one() -> None:
    assert decode(pr.ContainerResources, b"\x18\x01\x1a\x02\x02\x03\x18\x04").cpu_ids == (1, 2, 3, 4)
    assert encode(pr.ContainerResources(cpu_ids=(1, 2))) == b"\x1a\x02\x01\x02"
    with pytest.raises(DecodeError):
        decode(pr.ContainerResources, b"\x1a\x01\x80\x01")


def test_a_wide_number_is_cut_to_its_field() -> None:
    request = decode(dp.ContainerPreferredAllocationRequest, b"\x18" + write_varint((1 << 40) + (1 << 32) - 2))
    assert request.allocation_size == -2


def test_absent_and_empty_optional_text_differ() -> None:
    assert encode(pr.ClaimResource()) == b""
    assert encode(pr.ClaimResource(share_id="")) == b"\x2a\x00"
    assert decode(pr.ClaimResource, b"\x2a\x00").share_id == ""
    assert decode(pr.ClaimResource, b"").share_id is None


def test_kinds_beyond_the_kubelets() -> None:
    zoo = Zoo(b"\xff", (b"", b"\x00"), (True, False), 7, {"a": "b"})
    assert decode(Zoo, encode(zoo)) == zoo
    assert encode(Zoo(far=7)) == write_varint(300 << 3) + b"\x07"
    assert decode(Zoo, b"\x18\x01\x18\x00").flags == (True, False)


def test_values_a_field_cannot_carry_are_named() -> None:
    with pytest.raises(EncodeError, match="allocation_size is 2147483648, which is not an int32"):
        encode(dp.ContainerPreferredAllocationRequest(allocation_size=1 << 31))
    with pytest.raises(EncodeError, match="size is -1, which is not an uint64"):
        encode(pr.ContainerMemory(size=-1))
    with pytest.raises(EncodeError, match="Device cannot be encoded"):
        encode(dp.Device("\ud800"))
    with pytest.raises(EncodeError, match="Device cannot be encoded"):
        encode(dp.Device(3))  # type: ignore[arg-type]  # the mistake under test


def test_messages_are_values() -> None:
    node = dp.NUMANode(1)
    assert node == dp.NUMANode(id=1)
    assert node != dp.NUMANode(2)
    stranger: object = pr.NUMANode(1)
    assert node != stranger
    assert len({node, dp.NUMANode(1), dp.NUMANode(2)}) == 2
    assert repr(dp.TopologyInfo((node,))) == "TopologyInfo(nodes=(NUMANode(id=1),))"
    device: Any = dp.Device("a")
    assert replace(device, health=dp.HEALTHY) == dp.Device("a", dp.HEALTHY)


def test_a_message_cannot_be_changed() -> None:
    with pytest.raises(AttributeError, match="immutable"):
        dp.Device("a").id = "b"  # type: ignore[misc]  # the mistake under test


def test_a_long_list_survives_the_trip() -> None:
    devices = tuple(dp.Device(f"id-{i}", dp.HEALTHY, dp.TopologyInfo((dp.NUMANode(i % 2),))) for i in range(5000))
    listing = dp.ListAndWatchResponse(devices)
    assert decode(dp.ListAndWatchResponse, encode(listing)) == listing

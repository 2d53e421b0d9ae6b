"""Between our nouns and the kubelet's messages: device lists out, container edits out."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from msgspec import Struct

from fairlead.model.edits import Edits
from fairlead.model.names import DeviceId
from fairlead.model.resource import Resource, Slot
from fairlead.wire import deviceplugin as dp
from fairlead.wire.proto import encode


class Piece(Struct, frozen=True, gc=False):
    """The part of a list that tells of one device's slots."""

    slots: tuple[Slot, ...]
    usable: bool  # the device; a slot may have reasons of its own
    numa: tuple[int, ...]
    sick: str  # what is said of a slot that is not usable
    data: bytes


Pieces = Mapping[DeviceId, Piece]


def encode_devices(resource: Resource, known: Pieces) -> Pieces:
    """The list of a resource in pieces. A piece that is known and still true is taken as it is.

    So a fault on one device costs the encoding of its own slots, not of 60,000.
    """
    devices, unfit = resource.inventory.by_id, resource.inventory.sick
    sick = dp.UNWELL if resource.terse else dp.UNHEALTHY
    pieces: dict[DeviceId, Piece] = {}
    for name, slots in resource.slots_of.items():
        device = devices.get(name)
        numa = device.numa_nodes if device is not None and resource.hints else ()
        usable = name not in unfit
        piece = known.get(name)
        same = piece is not None and (piece.usable, piece.numa, piece.sick) == (usable, numa, sick)
        if piece is None or not same or piece.slots != slots:
            piece = Piece(slots, usable, numa, sick, _encode_slots(slots, usable=usable, numa=numa, sick=sick))
        pieces[name] = piece
    return pieces


def join(pieces: Pieces) -> bytes:
    return b"".join([piece.data for piece in pieces.values()])


def device_list(resource: Resource) -> bytes:
    """The encoded ListAndWatchResponse of a resource."""
    return join(encode_devices(resource, {}))


def _encode_slots(slots: tuple[Slot, ...], *, usable: bool, numa: tuple[int, ...], sick: str) -> bytes:
    """All slots of a device share health and topology, so that tail is encoded once and the id is put in front of it:
    60,000 slots take a fraction of what 60,000 message objects would.
    """
    out = _tail(sick, numa)
    tail = _tail(dp.HEALTHY, numa) if usable else out
    parts: list[bytes] = []
    heads: dict[tuple[int, int], bytes] = {}
    for slot in slots:
        name = slot.id.encode()
        end = tail if slot.retired_s is None and not slot.withheld else out
        size = len(name), len(end)
        head = heads.get(size)
        if head is None:
            start = b"\n" + _varint(len(name))  # "\n": field 1, length-delimited
            head = heads[size] = b"\n" + _varint(len(start) + len(name) + len(end)) + start
        parts += (head, name, end)
    return b"".join(parts)


@lru_cache(maxsize=64)  # two for each NUMA node: a fault must be told at once, and looks like the one before
def _tail(health: str, numa: tuple[int, ...]) -> bytes:
    topology = dp.TopologyInfo(nodes=tuple(dp.NUMANode(id=node) for node in numa)) if numa else None
    return encode(dp.Device(health=health, topology=topology))


def _varint(number: int) -> bytes:
    if number < 0x80:
        return bytes((number,))
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def container_response(edits: Edits) -> dp.ContainerAllocateResponse:
    if not (edits.mounts or edits.nodes or edits.annotations or edits.cdi):  # nearly always
        return dp.ContainerAllocateResponse(envs=edits.env)
    return dp.ContainerAllocateResponse(
        envs=edits.env,
        mounts=tuple(
            dp.Mount(container_path=mount.container_path, host_path=mount.host_path, read_only=mount.read_only)
            for mount in edits.mounts
        ),
        devices=tuple(
            dp.DeviceSpec(
                container_path=node.container_path or node.path, host_path=node.path, permissions=node.permissions
            )
            for node in edits.nodes
        ),
        annotations=edits.annotations,
        cdi_devices=tuple(dp.CDIDevice(name=name) for name in edits.cdi),
    )

"""What a pod asks of a node under a contract, what it has booked there, and what is written when it is placed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from fairlead.model.pod import Pod
from fairlead.model.quantity import AMOUNT_MAX
from fairlead.policy.packing.node import DEVICES_MAX, Demand, DeviceRoom, Share
from fairlead.policy.packing.told import key_of
from fairlead.policy.pods.annotations import read_taken, write_each
from fairlead.policy.pods.contract import Contract
from fairlead.policy.pods.requests import Fault, read_requests, total

_DIGITS_MAX = 3


def read_demand(pod: Pod, contract: Contract) -> Demand | Fault | None:
    """None: it asks for nothing of this."""
    faults: list[Fault] = []
    requests = read_requests(pod, contract.resource, faults)
    if faults:
        return faults[0]
    if not requests:
        return None
    units = total(requests)
    if units > AMOUNT_MAX:
        return Fault(f"{contract.resource}: {units} is more than any node has")
    if contract.whole:
        return Demand(0, units, whole=True) if units <= DEVICES_MAX else _too_many(units)
    devices = 1
    if text := pod.labels.get(contract.devices_label, "") if contract.devices_label else "":
        if not _is_number(text) or not int(text):
            return Fault(f"its label {contract.devices_label} is {text!r:.40}, which is no number of devices")
        devices = int(text)
        if devices > DEVICES_MAX:
            return _too_many(devices)
        odd = next((one.amount for one in requests if one.amount % devices), None)
        if odd is not None:
            return Fault(f"{odd} units of {contract.resource} cannot be divided among {devices} devices")
    if devices > 1 and requests[0].number < 0:
        # What init containers and sidecars ask for is on one of the devices: see `read_assignment`.
        units = total([one if one.number < 0 else replace(one, amount=one.amount // devices) for one in requests])
    else:
        units //= devices
    label, value = contract.whole_label
    return Demand(units, devices, whole=bool(label) and pod.labels.get(label) == value)


def _too_many(devices: int) -> Fault:
    return Fault(f"{devices} devices are asked for, and no node has more than {DEVICES_MAX}")


def read_shares(
    pod: Pod, demand: Demand, contract: Contract, devices: Sequence[DeviceRoom]
) -> tuple[Share, ...] | Fault | None:
    """None: it says nothing. Where only a part can be read, that part counts."""
    places = {(device.id if contract.by_id else device.index): place for place, device in enumerate(devices)}
    taken = read_taken(pod, contract, {word: word for word in places})
    if taken.units:
        whole = demand.whole and not demand.units
        found = ((places[word], units) for word, units in taken.units.items() if units or whole)
        return tuple(Share(place, devices[place].units if whole else units) for place, units in sorted(found))
    return None if taken.fault is None or taken.fault.absent else taken.fault


def write_annotations(
    pod: Pod, contract: Contract, devices: Sequence[DeviceRoom], places: Sequence[int], now_ns: int
) -> dict[str, str]:
    """For a pod on these devices: all that the node's plugin reads."""
    chosen = [devices[place] for place in places]
    names = tuple(one.id if contract.by_id else one.index for one in chosen)
    requests = read_requests(pod, contract.resource, [])
    made = {contract.device: ",".join(names), contract.time: str(now_ns)}
    if contract.per_container and (len(places) > 1 or len(requests) > 1):
        made[contract.per_container] = write_each(requests, [names] * len(requests))
    if contract.assigned:
        made[contract.assigned] = "false"
    if contract.pod_units:
        made[contract.pod_units] = str(total(requests))
    if contract.device_units:
        made[contract.device_units] = str(chosen[0].units)
    return made


def keys(contracts: Iterable[Contract]) -> frozenset[str]:
    """Annotations and labels of pods that are read: others are not worth memory."""
    found: set[str] = set()
    for one in contracts:
        found |= {one.device, one.per_container, *one.also_read, one.actual, one.devices_label, one.whole_label[0]}
    return frozenset(found - {""})


def node_keys(contracts: Iterable[Contract]) -> frozenset[str]:
    """Annotations, labels and amounts of nodes that are read."""
    found: set[str] = set()
    for one in contracts:
        found |= {key_of(one.resource), one.resource, one.count, one.preference_label, one.pods_max_label}
    return frozenset(found - {""})


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX


def node_settings(labels: Mapping[str, str], contract: Contract) -> tuple[str, int]:
    """The preference that a node's labels say, and the pods of one device; empty and 0 where they say nothing."""
    preference = labels.get(contract.preference_label, "") if contract.preference_label else ""
    text = labels.get(contract.pods_max_label, "") if contract.pods_max_label else ""
    return preference, int(text) if _is_number(text) else 0

"""The devices of a look as options want them beyond the strategy for MIG: how GPUs must be cut, nodes, names. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from fairlead.backends.nvidia.devices import Discovered, gpu_of
from fairlead.backends.nvidia.snapshot import Gpu, Snapshot
from fairlead.backends.nvidia.spec import Naming, Options, Partition
from fairlead.model.device import Device, DeviceNode
from fairlead.model.inventory import Links
from fairlead.model.names import DeviceId


def node_paths(snapshot: Snapshot) -> list[str]:
    """The nodes of all GPUs and instances."""
    gpus = (*snapshot.gpus, *snapshot.lost)
    return [path for gpu in gpus for path in (gpu.path, *(cap for one in gpu.migs for cap in one.cap_paths))]


def shape(
    discovered: Discovered, snapshot: Snapshot, links: Links, options: Options, missing: frozenset[str]
) -> tuple[Discovered, Links]:
    """`missing`: nodes that are not there. They matter only where nodes are all that a container gets."""
    devices, problems = list(discovered.devices), list(discovered.problems)
    gpus = sorted((*snapshot.gpus, *snapshot.lost), key=lambda gpu: gpu.index)
    if options.partition is not None:
        wrong = dict(_cut_otherwise(gpus, options.partition))
        problems += wrong.values()
        devices = [device for device in devices if gpu_of(device) not in wrong]
    if options.instance_nodes:
        caps = {gpu.uuid: [path for one in gpu.migs for path in one.cap_paths] for gpu in gpus}
        devices = [
            replace(device, nodes=(*device.nodes, *map(DeviceNode, caps.get(device.id, ())))) for device in devices
        ]
    if missing and not options.ways:
        for device in devices:
            if gone := [node.path for node in device.nodes if node.path in missing]:
                problems.append(f"{_name(device)} is not offered: there is no {' and no '.join(gone)}")
        devices = [device for device in devices if not any(node.path in missing for node in device.nodes)]
    if options.naming is Naming.MINOR:
        names = {gpu.uuid: DeviceId(f"nvidia{gpu.minor}") for gpu in gpus}
        version = {"driverVersion": snapshot.driver_version} if snapshot.driver_version else {}
        devices = [_by_minor(device, names, version) for device in devices]
        pairs = {pair: score for pair, score in links.items() if names.keys() >= set(pair)}
        links = Links({(names[one], names[other]): score for (one, other), score in pairs.items()})
    return Discovered(tuple(devices), tuple(problems)), links


def _cut_otherwise(gpus: list[Gpu], wanted: Partition) -> Iterator[tuple[str, str]]:
    """By the GPU's UUID, what is wrong with it."""
    for gpu in gpus:
        profiles = sorted(one.profile or "an unknown profile" for one in gpu.migs)
        known = {one.profile for one in gpu.migs if one.profile}
        if len(gpu.migs) != wanted.count or not known <= {wanted.profile}:
            found = ", ".join(profiles) or ("no instance" if gpu.mig_enabled else "MIG is off")
            expected = f"{wanted.count} of {wanted.profile} were expected, found: {found}"
            yield gpu.uuid, f"nvidia{gpu.minor} is not offered: it is not partitioned as expected. {expected}"


def _by_minor(device: Device, names: dict[str, DeviceId], version: dict[str, str]) -> Device:
    """With the UUIDs beside the name: the driver knows it by these."""
    gpu = gpu_of(device)
    base = names.get(gpu, device.id)
    own = {**device.attributes, **version, "gpu": gpu}
    if device.parent is None:
        return replace(device, id=base, attributes=own)
    id_ = DeviceId(f"{base}/gi{own['giId']}")
    return replace(device, id=id_, parent=base, attributes={**own, "uuid": device.id})


def _name(device: Device) -> str:
    own = device.attributes
    return f"nvidia{own['minor']}" + (f"/gi{own['giId']}" if "giId" in own else "")

"""Devices out of a look at the driver: which of the GPUs and MIG instances are offered, and as what. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from fairlead.backends.nvidia.errors import GpusFailed, MigMismatch
from fairlead.backends.nvidia.snapshot import Gpu, MigDevice, Platform, Snapshot
from fairlead.backends.nvidia.spec import MigStrategy, Scope
from fairlead.model.device import Device, DeviceNode

VENDOR = "nvidia"
WSL_NODE = "/dev/dxg"
WSL_ID, TEGRA_ID = "all", "tegra"


class Discovered(Struct, frozen=True):
    devices: tuple[Device, ...] = ()
    problems: tuple[str, ...] = ()


def make_devices(snapshot: Snapshot, mig: MigStrategy) -> Discovered:
    """What a look means under a way to show MIG. GPUs that are lost stay in the list: containers may have them."""
    if snapshot.platform is Platform.TEGRA:
        attributes = {"kind": "tegra", "computeCapability": "0.0"}
        return Discovered((Device(TEGRA_ID, index="0", vendor=VENDOR, attributes=attributes),))
    gpus = sorted((*snapshot.gpus, *snapshot.lost), key=lambda gpu: gpu.index)
    if snapshot.platform is Platform.WSL:
        return Discovered((_wsl(),) if gpus else (), snapshot.problems)
    if mig is MigStrategy.SINGLE:
        _check_single(gpus)
    devices: list[Device] = []
    problems: list[str] = []
    for gpu in gpus:
        if mig is MigStrategy.NONE or not gpu.mig_enabled:
            devices.append(_whole(gpu))
            continue
        if not gpu.migs:
            problems.append(f"device {gpu.index} has no MIG devices configured: nothing of GPU {gpu.index} is offered")
        for instance in gpu.migs:
            if missing := _missing_cap(gpu, instance):
                problems.append(missing)
            else:
                devices.append(_part(gpu, instance))
    if problems and not devices and any(gpu.migs for gpu in gpus):
        raise GpusFailed(problems)
    return Discovered(tuple(devices), (*snapshot.problems, *problems))


def describe(gpus: Iterable[Gpu], mig: MigStrategy) -> Iterator[Device]:
    """Each GPU or instance as a device, whether or not it can be offered as it is."""
    for gpu in gpus:
        if mig is MigStrategy.NONE or not gpu.mig_enabled:
            yield _whole(gpu)
        else:
            yield from (_part(gpu, instance) for instance in gpu.migs)


def _check_single(gpus: list[Gpu]) -> None:
    """Whether all that would be offered is of one kind, so that a pod gets the same whichever it gets."""
    cut = [gpu for gpu in gpus if gpu.mig_enabled]
    if bare := [gpu for gpu in cut if not gpu.migs]:
        raise MigMismatch(
            "at least one device with migEnabled=true was not configured correctly: "
            f"device {bare[0].index} has no MIG devices configured"
        )
    kinds = {instance.slice: instance.profile for gpu in cut for instance in gpu.migs}
    if len(kinds) > 1:
        names = ", ".join(sorted(set(kinds.values())))
        raise MigMismatch(f"more than one MIG device type present on node: {names}")
    if cut and len(cut) < len(gpus):
        on = ", ".join(str(gpu.index) for gpu in cut)
        raise MigMismatch(
            f"all devices on the node must be configured with the same migEnabled value: MIG is on for GPU {on} only"
        )


def _whole(gpu: Gpu) -> Device:
    return Device(
        gpu.uuid,
        index=str(gpu.index),
        vendor=VENDOR,
        model=gpu.name,
        memory_bytes=gpu.memory_bytes,
        pci_address=gpu.bus_id,
        numa_nodes=_numa(gpu),
        nodes=(DeviceNode(gpu.path),),
        attributes={"kind": "gpu", "computeCapability": gpu.cc, "minor": str(gpu.minor)},
    )


def _part(gpu: Gpu, instance: MigDevice) -> Device:
    attributes = {
        "kind": "mig",
        "profile": instance.resource_profile,
        "mig": instance.profile,
        "computeCapability": gpu.cc,
        "minor": str(gpu.minor),
        "giId": str(instance.gi),
        "ciId": str(instance.ci),
    }
    if instance.placement:
        attributes["placement"] = instance.placement
    return Device(
        instance.uuid,
        index=f"{gpu.index}:{instance.index}",
        vendor=VENDOR,
        model=gpu.name,
        memory_bytes=instance.memory_bytes,
        pci_address=gpu.bus_id,
        numa_nodes=_numa(gpu),
        nodes=tuple(DeviceNode(path) for path in (gpu.path, *instance.cap_paths)),
        parent=gpu.uuid,
        attributes=attributes,
    )


def _wsl() -> Device:
    """Below WSL one node leads to all GPUs."""
    nodes = (DeviceNode(WSL_NODE),)
    return Device(WSL_ID, index=WSL_ID, vendor=VENDOR, nodes=nodes, attributes={"kind": "wsl"})


def _numa(gpu: Gpu) -> tuple[int, ...]:
    return () if gpu.numa is None else (gpu.numa,)


def _missing_cap(gpu: Gpu, instance: MigDevice) -> str:
    path = f"/proc/driver/nvidia/capabilities/gpu{gpu.minor}/mig/gi{instance.gi}"
    if instance.gi_cap is None:
        return f"missing MIG GPU instance capability path: {path}/access"
    if instance.ci_cap is None:
        return f"missing MIG compute instance capability path: {path}/ci{instance.ci}/access"
    return ""


def gpu_of(device: Device) -> str:
    """The UUID of the GPU that a device is, or is cut from. A device that is named otherwise carries it."""
    return device.attributes.get("gpu") or device.parent or device.id


def reach(
    devices: Iterable[Device],
    gpu: str,
    gi: int | None = None,
    ci: int | None = None,
    scope: Scope = Scope.INSTANCE,
) -> Iterator[Device]:
    """The devices that a fault of a GPU, or of one instance on it, concerns."""
    for device in devices:
        whole = device.parent is None or scope is Scope.GPU
        if scope is Scope.NODE or (gpu_of(device) == gpu and (whole or _is_named(device, gi, ci))):
            yield device


def _is_named(device: Device, gi: int | None, ci: int | None) -> bool:
    """Without an instance a report is of the whole GPU."""
    own = device.attributes
    return (gi is None or own["giId"] == str(gi)) and (ci is None or own["ciId"] == str(ci))

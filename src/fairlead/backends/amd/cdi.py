"""The CDI spec of AMD GPUs: the nodes of each device, and those that all of them share. Written after a scan."""

from __future__ import annotations

from collections.abc import Iterable

from fairlead.backends.amd.devices import KFD
from fairlead.backends.amd.spec import Options
from fairlead.backends.specdirectory import SpecDirectory
from fairlead.inject import cdi
from fairlead.model.device import Device, DeviceNode


def kind_of(options: Options) -> str:
    return f"{options.cdi.vendor}/gpu"


def make_spec(options: Options, devices: Iterable[Device]) -> cdi.Spec:
    nodes = {device.id: tuple(map(_node, device.nodes)) for device in devices}
    shared = dict.fromkeys(node for own in nodes.values() for node in own if node.path == KFD)
    return cdi.Spec(
        kind=kind_of(options),
        devices=tuple(
            cdi.Device(
                name=cdi.device_name(name),
                container_edits=cdi.ContainerEdits(device_nodes=tuple(node for node in own if node.path != KFD)),
            )
            for name, own in nodes.items()
        ),
        container_edits=cdi.ContainerEdits(device_nodes=tuple(shared)),
    )


def publish(options: Options, devices: tuple[Device, ...], *, wanted: bool) -> None:
    """Also where the configuration wants no spec: that of an earlier one must go. BackendError if it cannot."""
    directory, kind = SpecDirectory(options.cdi.directory), kind_of(options)
    if wanted and devices:
        directory.publish([make_spec(options, devices)])
    elif directory.made(kind):
        directory.withdraw([kind])


def _node(node: DeviceNode) -> cdi.Node:
    inside = node.container_path or node.path
    return cdi.Node(inside, node.path if node.path != inside else "", permissions=node.permissions)

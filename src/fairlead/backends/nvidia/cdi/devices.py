"""The devices of a CDI spec: their nodes on this host, and the links by which graphics programs look for them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from msgspec import Struct

from fairlead.backends.nvidia.cdi.common import Hooks
from fairlead.backends.nvidia.hostnodes import NodeFacts, ReadNode, below
from fairlead.backends.nvidia.snapshot import Gpu, MigDevice
from fairlead.backends.nvidia.spec import Ids
from fairlead.inject import cdi
from fairlead.kit.hostroot import HostRoot


class Nodes(Struct, frozen=True):
    """Device nodes: where they are, seen from here, and where the host has them."""

    mount: str  # the root they are below, seen from here
    host_root: str  # the same root on the host
    read: ReadNode
    gids: bool = True  # a container's user joins the group of a node that is not for everyone

    def edits(self, paths: Iterable[str], *, required: bool = False) -> cdi.ContainerEdits:
        """Those that are there. A required one is named also while it is missing.

        The runtime then looks for it when it starts the container, and says which one it did not find. A container
        that starts without its GPU says nothing.
        """
        found: list[tuple[str, NodeFacts | None]] = [(path, self.read(below(self.mount, path))) for path in paths]
        kept = [(path, facts) for path, facts in found if facts or required]
        return cdi.ContainerEdits(
            device_nodes=tuple(self._node(path, facts) for path, facts in kept),
            additional_gids=tuple(
                facts.gid for _, facts in kept if facts and self.gids and facts.gid and facts.mode & 0o006 != 0o006
            ),
        )

    def _node(self, path: str, facts: NodeFacts | None) -> cdi.Node:
        host = self.host_root.rstrip("/") + path
        host_path = host if host != path else ""
        if facts is None:
            return cdi.Node(path, host_path)
        return cdi.Node(
            path,
            host_path,
            major=facts.major,
            minor=facts.minor,
            file_mode=facts.mode,
            permissions="rwm",
            gid=facts.gid or None,
        )

    def links(self, bus_id: str, paths: Iterable[str]) -> Iterator[str]:
        """The names by PCI address of the graphics nodes among `paths`."""
        known = {path for path in paths if self.read(below(self.mount, path))}
        for what in ("card", "render"):
            link = f"/dev/dri/by-path/pci-{bus_id}-{what}"
            try:
                target = str(below(self.mount, link).readlink())
            except OSError:
                continue
            if os.path.normpath(f"/dev/dri/by-path/{target}") in known:
                yield f"{target}::{link}"


class Gpus(Struct, frozen=True):
    """Makes the entries of class gpu."""

    nodes: Nodes
    hooks: Hooks
    sysfs: str  # the root that has /sys
    ids: Ids
    whole: bool  # GPUs that are cut into MIG instances are offered whole, too
    coherent: bool = False  # say of each GPU whether its memory is a node of the host
    together: bool = False  # one more entry, for all of them

    def devices(self, gpus: Iterable[Gpu]) -> tuple[cdi.Device, ...]:
        """Each by its name, and `all` of them if that is wanted."""
        found: list[cdi.Device] = []
        for gpu in gpus:
            instances = [self._mig(gpu, mig) for mig in gpu.migs]
            if not gpu.mig_enabled or self.whole:
                found.append(self._gpu(gpu))
            found += instances
        named = tuple(sorted(found, key=lambda device: device.name))
        if not found or not self.together:
            return named
        return (*named, cdi.Device(name="all", container_edits=cdi.join(device.container_edits for device in found)))

    def _gpu(self, gpu: Gpu) -> cdi.Device:
        # The instances of a GPU that is cut are the only way to use it: a container with the GPU gets them.
        caps = [path for mig in gpu.migs for path in mig.cap_paths] if gpu.mig_enabled else []
        annotations = {"gpu.nvidia.com/coherent": str(gpu.coherent).lower()} if self.coherent else {}
        name = gpu.uuid if self.ids is Ids.UUID else str(gpu.index)
        edits = self._edits(gpu, caps, self._graphics_nodes(gpu))
        return cdi.Device(name=cdi.device_name(name), annotations=annotations, container_edits=edits)

    def _mig(self, gpu: Gpu, mig: MigDevice) -> cdi.Device:
        graphics = self._graphics_nodes(gpu) if "gfx" in mig.profile.partition("+")[2] else []
        name = mig.uuid if self.ids is Ids.UUID else f"{gpu.index}:{mig.index}"
        edits = self._edits(gpu, mig.cap_paths, graphics)
        return cdi.Device(name=cdi.device_name(name), container_edits=edits)

    def _edits(self, gpu: Gpu, caps: Iterable[str], graphics: list[str]) -> cdi.ContainerEdits:
        return cdi.join(
            [
                self.nodes.edits([gpu.path, *caps], required=True),
                self.nodes.edits(graphics),
                cdi.ContainerEdits(hooks=self.hooks.link(self.nodes.links(gpu.bus_id, graphics))),
            ]
        )

    def _graphics_nodes(self, gpu: Gpu) -> list[str]:
        if not gpu.bus_id:
            return []
        return [f"/dev/dri/{name}" for name in HostRoot(self.sysfs).names(f"/sys/bus/pci/devices/{gpu.bus_id}/drm")]

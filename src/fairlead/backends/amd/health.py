"""Whether the kernel still shows each device as it must be: the driver, KFD, the nodes in /dev, counters of errors.

Blocking: runs on a thread of its own, because a counter asks the hardware. A verdict is for one device; what cannot be
read says nothing of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from fairlead.backends.amd import sysfs
from fairlead.backends.amd.host import DRIVER, function_names
from fairlead.backends.amd.spec import Check, Health
from fairlead.backends.amd.topology import Topology, read_topology
from fairlead.kit.hostroot import HostRoot
from fairlead.model.device import Device
from fairlead.model.errors import BackendError, NotYet
from fairlead.model.health import Cause, CauseKind
from fairlead.model.names import DeviceId
from fairlead.model.ports import Clock

# Each fault, what ends it, and what people read. Clean probes after the hold bring a device back.
CAUSES = {
    "driver-gone": (CauseKind.NEEDS_RESET, "the kernel module amdgpu is not loaded"),
    "gpu-gone": (CauseKind.NEEDS_RESET, "its PCI function is not with the driver amdgpu"),
    "kfd-gone": (CauseKind.NEEDS_RESET, "KFD, the kernel's compute driver, does not show it"),
    "ras": (CauseKind.NEEDS_RESET, "uncorrectable errors"),
    "exporter": (CauseKind.NEEDS_RESET, "AMD's metrics exporter says that it is unhealthy"),
    "node-missing": (CauseKind.TRANSIENT, "a node is missing"),
    "no-answer": (CauseKind.TRANSIENT, "the driver does not answer for it"),
}
_COUNTER = re.compile(r"(\w{1,32})_err_count")
_UNCORRECTABLE = re.compile(r"ue:\s*(\d{1,20})\b")

Verdict = Cause | Exception | None


def cause_of(code: str, detail: str = "", block: str = "") -> Cause:
    kind, message = CAUSES[code]
    return Cause(f"{code}-{block}" if block else code, kind, f"{message}: {detail}" if detail else message)


class Examiner:
    def __init__(self, root: HostRoot, health: Health, clock: Clock) -> None:
        self._root, self._clock = root, clock
        self._checks = frozenset(health.checks)
        self._tolerated = health.tolerated
        self._counts: dict[str, dict[str, int]] = {}  # by GPU and block, as last read
        self._known: set[str] = set()  # nodes that were there once
        self._lost: set[DeviceId] = set()  # devices that KFD did not show when it was last asked
        self._asking, self._since_s = "", 0.0  # the GPU whose counters are being read

    def hanging(self, for_s: float) -> str:
        """The GPU whose counters have been read for so long; else empty. Any thread may ask."""
        gpu, since_s = self._asking, self._since_s
        return gpu if self._clock.monotonic() - since_s >= for_s else ""

    def examine(self, devices: Sequence[Device]) -> dict[DeviceId, Verdict]:
        try:
            functions = frozenset(function_names(self._root))
        except NotYet as error:
            return dict.fromkeys((device.id for device in devices), cause_of("driver-gone", str(error)))
        topology = read_topology(self._root, details=False) if Check.KFD in self._checks else None
        gone = self._gone(devices) if Check.NODES in self._checks else frozenset()
        gpus = dict.fromkeys(device.attributes["gpu"] for device in devices)
        faults = {gpu: self._faults(gpu) for gpu in gpus if gpu in functions and Check.RAS in self._checks}
        return {device.id: self._judge(device, functions, topology, gone, faults) for device in devices}

    def _gone(self, devices: Sequence[Device]) -> frozenset[str]:
        """Nodes that were there and are not. One that never was says nothing: this may be the /dev of a container."""
        paths = {node.container_path or node.path for device in devices for node in device.nodes}
        there = {path for path in paths if self._root.real(path)}
        self._known |= there
        return frozenset((self._known & paths) - there)

    def _faults(self, gpu: str) -> Cause | None:
        """Counters are of a whole GPU. One that cannot be read just now stands as it was."""
        self._since_s, self._asking = self._clock.monotonic(), gpu
        at = f"{DRIVER}/{gpu}/ras"
        real = self._root.real(at)
        before, counts = self._counts.get(gpu, {}), {}
        for name in self._root.names(at) if real is not None else ():
            if match := _COUNTER.fullmatch(name):
                try:
                    found = _UNCORRECTABLE.search(sysfs.text(self._root.outside(f"{real}/{name}")))
                except OSError:
                    found = None
                counts[match[1]] = int(found[1]) if found else before.get(match[1], 0)
        self._counts[gpu] = counts
        self._asking = ""
        for block, count in counts.items():
            if count > self._tolerated.get(block, 0):
                return cause_of("ras", f"{count} in {block} of {gpu} since the driver was loaded", block)
        return None

    def _judge(
        self,
        device: Device,
        functions: frozenset[str],
        topology: Topology | None,
        gone: frozenset[str],
        faults: Mapping[str, Cause | None],
    ) -> Verdict:
        gpu, render = device.attributes["gpu"], int(device.attributes["render"])
        if gpu not in functions:
            return cause_of("gpu-gone", gpu)
        if topology is not None and render not in topology.nodes:
            if not topology.unreadable:
                self._lost.add(device.id)
                return cause_of("kfd-gone", f"no node has drm_render_minor {render}")
        else:
            self._lost.discard(device.id)
        if cause := faults.get(gpu):
            return cause
        if gone and (missing := [path for node in device.nodes if (path := node.container_path or node.path) in gone]):
            return cause_of("node-missing", missing[0])
        # What cannot be read says nothing of a device that was well, and does not make one well that was lost.
        if topology is not None and device.id in self._lost:
            return BackendError(f"KFD cannot be asked: {topology.unreadable}")
        return None

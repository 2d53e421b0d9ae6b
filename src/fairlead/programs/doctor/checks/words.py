"""What several checks ask of the facts, and how they name many things."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fairlead.observe.plan import PlannedDevice
from fairlead.observe.status import DeviceStatus
from fairlead.programs.doctor.facts import Facts, Missing, NvmlFacts, NvmlFailure, PciDevice
from fairlead.programs.doctor.findings import LacksError, need

SHOWN = 5
NVIDIA, AMD = "10de", "1002"
GPU_CLASSES = frozenset({"0300", "0302", "0380", "1200"})
NVSWITCH_CLASS = "0680"


def listing(names: Iterable[object]) -> str:
    some = [str(name) for name in names]
    more = len(some) - SHOWN
    return ", ".join(some[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def gpus(facts: Facts, vendor: str) -> list[PciDevice]:
    return [one for one in need(facts.pci) if one.vendor == vendor and one.kind in GPU_CLASSES]


def has_nvidia(facts: Facts) -> bool:
    """Whether there are NVIDIA GPUs on the bus. Not known without the bus: then the check is not made."""
    return bool(gpus(facts, NVIDIA))


def offered(facts: Facts) -> Sequence[DeviceStatus | PlannedDevice]:
    """The devices of all daemons that answer, or those that the configuration finds."""
    if not isinstance(facts.daemons, Missing):
        return [device for daemon in facts.daemons for device in daemon.status.devices]
    if isinstance(facts.plan, Missing):
        raise LacksError(f"{facts.daemons.why}; {facts.plan.why}")
    return facts.plan.devices


def our_set(facts: Facts) -> dict[str, str]:
    """Namespace and name of the daemon's own DaemonSet, for a command; as the chart has them where it is not known."""
    sets = () if isinstance(facts.daemon_sets, Missing) else facts.daemon_sets
    own = next((one for one in sets if any("fairlead" in image for image in one.images)), None)
    return {"namespace": own.namespace if own else "kube-system", "name": own.name if own else "fairlead"}


def nvml(facts: Facts) -> NvmlFacts:
    if isinstance(facts.nvml, NvmlFailure):
        raise LacksError(facts.nvml.text)
    return need(facts.nvml)

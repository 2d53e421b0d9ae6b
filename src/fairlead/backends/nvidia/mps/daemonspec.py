"""What each control daemon of MPS serves and how its clients are limited. Pure: no files, no processes."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from msgspec import Struct

from fairlead.backends.nvidia.spec import Mps
from fairlead.model.device import Device
from fairlead.model.errors import BackendError

MIB = 1024 * 1024
# Clients that the hardware keeps apart; older GPUs have fewer.
MOST_CLIENTS, MOST_CLIENTS_OLD = 48, 16
MANY_CLIENTS_FROM = (7, 5)


class ControlDaemonSpec(Struct, frozen=True):
    """One control daemon: the resource whose containers are its clients."""

    resource: str
    root: str
    gpus: tuple[str, ...]  # their ids
    memory: tuple[tuple[str, int], ...]  # index of a GPU, and MiB that a client may pin there
    threads_percent: int  # of a GPU's multiprocessors, for each client
    problems: tuple[str, ...] = ()  # why such a daemon would refuse its clients
    shared_pipe: str = ""  # of a daemon that another program runs for all GPUs

    @property
    def directory(self) -> str:
        return f"{self.root.rstrip('/')}/{self.resource}"

    @property
    def pipe(self) -> str:
        return self.shared_pipe or f"{self.directory}/pipe"

    @property
    def log(self) -> str:
        return f"{self.directory}/log"

    @property
    def started(self) -> str:
        return f"{self.directory}/.started"

    @property
    def environment(self) -> dict[str, str]:
        log = {} if self.shared_pipe else {"CUDA_MPS_LOG_DIRECTORY": self.log}
        return {"CUDA_MPS_PIPE_DIRECTORY": self.pipe, **log}

    @property
    def limits(self) -> tuple[str, ...]:
        """The orders that set the limits."""
        return (
            *(f"set_default_device_pinned_mem_limit {index} {mib}M" for index, mib in self.memory),
            f"set_default_active_thread_percentage {self.threads_percent}",
        )


def make_daemon_specs(mps: Mps, devices: Iterable[Device]) -> tuple[ControlDaemonSpec, ...]:
    """A spec for each resource that is shared and has GPUs. BackendError when MPS cannot do what is asked."""
    found = list(devices)
    if mps.clients:
        gpus = tuple(device.id for device in found)
        return (ControlDaemonSpec("this node", "", gpus, (), 0, shared_pipe=mps.pipe),) if gpus else ()
    specs = tuple(
        spec
        for resource, replicas in mps.replicas.items()
        if replicas > 1 and (spec := _make_spec(mps, resource, replicas, found)) is not None
    )
    holder: dict[str, str] = {}
    for spec in specs:
        for gpu in spec.gpus:
            other = holder.setdefault(gpu, spec.resource)
            if other != spec.resource:
                raise BackendError(
                    f"invalid MPS configuration: GPU {gpu} would be shared as {other} and as {spec.resource}, and it "
                    f"can have one control daemon. Say in mps.devices which GPUs belong to which"
                )
    return specs


def _make_spec(mps: Mps, resource: str, replicas: int, devices: list[Device]) -> ControlDaemonSpec | None:
    patterns = mps.devices.get(resource)
    served = [device for device in devices if patterns is None or _listed(device, patterns)]
    if not served:
        return None
    for device in served:
        _refuse_mig(device)
    return ControlDaemonSpec(
        resource,
        mps.root,
        tuple(dict.fromkeys(device.id for device in served)),
        tuple((device.index, device.memory_bytes // replicas // MIB) for device in served if device.memory_bytes),
        100 // replicas,
        tuple(problem for device in served if (problem := _too_many(device, replicas))),
    )


def _listed(device: Device, patterns: tuple[str, ...]) -> bool:
    return any(text in {device.id, device.index} or fnmatchcase(device.model, text) for text in patterns)


def _refuse_mig(device: Device) -> None:
    if device.parent is not None or device.attributes.get("kind") == "mig":
        raise BackendError(
            f"invalid MPS configuration: sharing using MPS is not supported for MIG devices, such as {device.id}. "
            f"Use time-slicing for them, or mig: none"
        )


def _too_many(device: Device, replicas: int) -> str:
    most = most_clients(device.attributes.get("computeCapability", ""))
    if replicas <= most:
        return ""
    return (
        f"invalid MPS configuration: invalid device maximum allowed replicas exceeded: {replicas} > {most} "
        f"({device.id}, {device.model or 'of unknown model'}). Use {most} or fewer replicas"
    )


def most_clients(compute_capability: str) -> int:
    """How many clients a GPU can have: 16 before compute capability 7.5, then 48."""
    major, _, minor = compute_capability.removeprefix("v").partition(".")
    known = (int(major), int(minor or 0)) if major.isdigit() and (minor or "0").isdigit() else (0, 0)
    return MOST_CLIENTS if known >= MANY_CLIENTS_FROM else MOST_CLIENTS_OLD

"""The labels: from what is known of a machine to names and values. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from msgspec import Struct

from fairlead.backends.nvidia.snapshot import Gpu, MigDevice, Snapshot
from fairlead.model.errors import FairleadError
from fairlead.programs.labels.names import Offered

PREFIX = "nvidia.com/"
GPU = "gpu"
UNKNOWN = "unknown"
VALUE_MAX = 63
_MIB = 2**20
_COMPUTE, _GRAPHICS = 0x0302, 0x0300
_FAMILIES = {1: "tesla", 2: "fermi", 3: "kepler", 5: "maxwell", 6: "pascal", 9: "hopper", 13: "rubin"}
_TURING_MINOR, _ADA_MINOR = 5, 9


class Vgpu(Struct, frozen=True):
    """What a virtual GPU says of its host. Empty where it says nothing."""

    driver_version: str = ""
    driver_branch: str = ""


class Facts(Struct, frozen=True):
    snapshot: Snapshot | None = None  # None: no driver
    machine: str = "unknown"
    classes: tuple[int | None, ...] = ()  # PCI class and sub-class of each GPU; None: not known
    cliques: tuple[tuple[str, int], ...] = ()  # of the fabric that GPUs are part of
    vgpus: tuple[Vgpu, ...] | None = ()  # None: could not be looked for
    timestamp: int | None = None


class BadLabels(FairleadError):
    """What is found cannot be labelled."""


def make_labels(
    facts: Facts, strategy: str, kind: str, offered: Mapping[str, Offered]
) -> tuple[dict[str, str], list[str]]:
    """The labels, and what was odd. BadLabels for a setting that cannot be met.

    `kind` is how the config file shares, `offered` what it makes of each GPU and instance, by UUID.
    """
    labels: dict[str, str] = {}
    notes: list[str] = []
    if facts.timestamp is not None:
        labels["gfd.timestamp"] = str(facts.timestamp)
    snapshot = facts.snapshot
    if snapshot is not None and snapshot.gpus:
        if strategy not in {"none", "single", "mixed"}:
            raise BadLabels(f"unknown strategy: {strategy}. --mig-strategy is none, single or mixed")
        labels["gpu.machine"] = sanitise(facts.machine)
        labels |= _versions(snapshot)
        labels["mig.capable"] = _yes(any(gpu.mig_capable for gpu in snapshot.gpus))
        labels["mps.capable"] = _yes(_mps_capable(snapshot.gpus, kind))
        labels |= _resources(snapshot.gpus, strategy, _Names(kind, offered), notes)
        labels["gpu.mode"] = _mode(facts.classes)
        labels |= _clique(facts.cliques)
    labels |= _vgpu(facts.vgpus)
    return {PREFIX + name: _cut(value) for name, value in sorted(labels.items())}, notes


def sanitise(text: str) -> str:
    """As a label's value: nothing but letters, digits and -_. , and runs of blanks become one dash."""
    kept = re.sub(r"[^A-Za-z0-9\-_. ]", "", text.strip())
    return "-".join(kept.split())


def _cut(value: str) -> str:
    """Not longer than Kubernetes takes it, with a letter or digit at both ends."""
    return value[:VALUE_MAX].strip("-_.")


def _yes(fact: bool) -> str:
    return "true" if fact else "false"


# --- Machine ----------------------------------------------------------------------------------------------------------


def _versions(snapshot: Snapshot) -> dict[str, str]:
    parts = snapshot.driver_version.split(".")
    if snapshot.driver_version == UNKNOWN:
        parts = [UNKNOWN] * 3
    if len(parts) not in {2, 3}:
        raise BadLabels(f'Version "{snapshot.driver_version}" does not match format "X.Y[.Z]"')
    major, minor, revision = (*parts, "")[:3]
    cuda_major, cuda_minor = str(snapshot.cuda_version // 1000), str(snapshot.cuda_version % 1000 // 10)
    return {
        "cuda.driver-version.full": ".".join(parts),
        "cuda.driver-version.major": major,
        "cuda.driver-version.minor": minor,
        "cuda.driver-version.revision": revision,
        "cuda.driver.major": major,
        "cuda.driver.minor": minor,
        "cuda.driver.rev": revision,
        "cuda.runtime-version.full": f"{cuda_major}.{cuda_minor}",
        "cuda.runtime-version.major": cuda_major,
        "cuda.runtime-version.minor": cuda_minor,
        "cuda.runtime.major": cuda_major,
        "cuda.runtime.minor": cuda_minor,
    }


def _mps_capable(gpus: Iterable[Gpu], kind: str) -> bool:
    if kind != "mps":
        return False
    if any(gpu.mig_enabled for gpu in gpus):
        raise BadLabels("MPS sharing is not supported for mig devices. Turn MIG off, or use time-slicing")
    return True


def _mode(classes: tuple[int | None, ...]) -> str:
    kinds = set(classes)
    if kinds == {_GRAPHICS}:
        return "graphics"
    return "compute" if kinds == {_COMPUTE} else "unknown"


def _clique(cliques: tuple[tuple[str, int], ...]) -> dict[str, str]:
    clusters, numbers = {cluster for cluster, _ in cliques}, {number for _, number in cliques}
    if len(clusters) != 1 or len(numbers) != 1:
        return {}
    return {"gpu.clique": f"{clusters.pop()}.{numbers.pop()}"}


def _vgpu(vgpus: tuple[Vgpu, ...] | None) -> dict[str, str]:
    if vgpus is None:
        return {}
    labels = {"vgpu.present": _yes(bool(vgpus))}
    for vgpu in vgpus:
        labels["vgpu.host-driver-version"] = vgpu.driver_version
        labels["vgpu.host-driver-branch"] = vgpu.driver_branch
    return labels


# --- GPUs -------------------------------------------------------------------------------------------------------------


def _resources(gpus: tuple[Gpu, ...], strategy: str, names: _Names, notes: list[str]) -> dict[str, str]:
    labels = {} if strategy == "none" else {"mig.strategy": strategy}
    whole = _whole(gpus, names, notes)
    on = [gpu for gpu in gpus if gpu.mig_enabled]
    if strategy == "none" or not on:
        return labels | whole
    if strategy == "single" and (trouble := _why_invalid(gpus, on)):
        notes.append(f"--mig-strategy=single does not fit this node: {trouble}")
        arch = _architecture(whole_gpu) if (whole_gpu := _first(gpus)) else {}
        return labels | _invalid(on[0]) | arch
    return labels | whole | _cut_up(on, names)


class _Names(Struct, frozen=True):
    """Under which names GPUs and instances are offered, and what labels say of a name."""

    kind: str
    offered: Mapping[str, Offered]

    def of(self, uuid: str) -> str:
        return self.offered[uuid].label if uuid in self.offered else GPU

    def labels(self, name: str, product: str, uuids: Iterable[str], *, none: bool = False) -> dict[str, str]:
        """`none`: no device is offered by this name. Where a pod may get a shared one, the labels say shared."""
        found = [self.offered[uuid] for uuid in uuids if uuid in self.offered]
        shared = [] if none else [one for one in found if one.replicas > 1]
        suffix = "-SHARED" if any(not one.renamed for one in shared) else ""
        replicas = max((one.replicas for one in shared), default=0 if none else 1)
        return {
            f"{name}.replicas": str(replicas),
            f"{name}.sharing-strategy": self.kind if shared else "none",
            f"{name}.product": product + suffix,
        }


def _whole(gpus: Iterable[Gpu], names: _Names, notes: list[str]) -> dict[str, str]:
    """Of several models, the one with the most GPUs; of equals, the one with the lowest index."""
    group = _largest(gpus, notes)
    # One that is not cut speaks for its model.
    gpu = next((one for one in group if not one.mig_enabled), group[0])
    mine = [one for one in group if one.mig_enabled or names.of(one.uuid) == GPU]
    none = gpu.mig_enabled or not mine
    labels = names.labels(GPU, sanitise(gpu.name), [one.uuid for one in mine], none=none)
    labels |= _size(GPU, len(mine), gpu) | _architecture(gpu)
    others: dict[str, list[Gpu]] = {}
    for one in gpus:
        if not one.mig_enabled and (name := names.of(one.uuid)) != GPU:
            others.setdefault(name, []).append(one)
    for name, offered in others.items():
        group = _largest(offered, notes)
        labels |= names.labels(name, sanitise(group[0].name), [one.uuid for one in offered])
        labels |= _size(name, len(offered), group[0])
    return labels


def _largest(gpus: Iterable[Gpu], notes: list[str]) -> list[Gpu]:
    models: dict[str, list[Gpu]] = {}
    for gpu in gpus:
        models.setdefault(gpu.name, []).append(gpu)
    if len(models) > 1:
        notes.append(f"there are GPUs of {len(models)} models; the labels are those of the most numerous")
    return max(models.values(), key=len)


def _size(name: str, count: int, gpu: Gpu) -> dict[str, str]:
    labels = {f"{name}.count": str(count)}
    if gpu.memory_bytes:
        labels[f"{name}.memory"] = str(gpu.memory_bytes // _MIB)
    return labels


def _first(gpus: Iterable[Gpu]) -> Gpu | None:
    return next(iter(gpus), None)


def _architecture(gpu: Gpu) -> dict[str, str]:
    major, _, minor = gpu.cc.partition(".")
    if not major.isdigit() or int(major) == 0:
        return {}
    return {"gpu.compute.major": major, "gpu.compute.minor": minor, "gpu.family": family(int(major), int(minor or 0))}


def family(major: int, minor: int) -> str:
    match major:
        case 7:
            return "turing" if minor >= _TURING_MINOR else "volta"
        case 8:
            return "ada-lovelace" if minor >= _ADA_MINOR else "ampere"
        case 10 | 11 | 12:
            return "blackwell"
        case _:
            return _FAMILIES.get(major, "undefined")


# --- MIG --------------------------------------------------------------------------------------------------------------


def _why_invalid(gpus: Iterable[Gpu], on: list[Gpu]) -> str:
    if any(not gpu.migs for gpu in on):
        return "at least one MIG device is enabled but empty"
    if any(not gpu.mig_enabled for gpu in gpus):
        return "some GPUs are cut into MIG instances and some are not"
    if len({mig.slice for gpu in on for mig in gpu.migs}) > 1:
        return "more than one MIG device type present on node"
    return ""


def _invalid(gpu: Gpu) -> dict[str, str]:
    return {
        "gpu.product": f"{sanitise(gpu.name)}-MIG-INVALID",
        "gpu.count": "0",
        "gpu.replicas": "0",
        "gpu.memory": "0",
        "gpu.sharing-strategy": "",
    }


def _cut_up(on: list[Gpu], names: _Names) -> dict[str, str]:
    """By the names under which instances are offered: one for all, or one for each profile."""
    labels: dict[str, str] = {}
    kinds: dict[str, list[tuple[Gpu, MigDevice]]] = {}
    for gpu in on:
        for mig in gpu.migs:
            kinds.setdefault(names.of(mig.uuid), []).append((gpu, mig))
    for name, pairs in kinds.items():
        labels |= _instances(name, pairs, names)
    return labels


def _instances(name: str, pairs: list[tuple[Gpu, MigDevice]], names: _Names) -> dict[str, str]:
    gpu, mig = pairs[0]
    cut = mig.slice
    numbers: Mapping[str, int] = {
        "count": len(pairs),
        "memory": cut.memory_mib,
        "multiprocessors": cut.multiprocessors,
        "slices.gi": cut.gi_slices,
        "slices.ci": cut.ci_slices,
        "engines.copy": cut.copy_engines,
        "engines.decoder": cut.decoders,
        "engines.encoder": cut.encoders,
        "engines.jpeg": cut.jpegs,
        "engines.ofa": cut.ofas,
    }
    product = f"{sanitise(gpu.name)}-MIG-{mig.resource_profile}"
    labels = names.labels(name, product, [one.uuid for _, one in pairs])
    return labels | {f"{name}.{key}": str(number) for key, number in numbers.items()}

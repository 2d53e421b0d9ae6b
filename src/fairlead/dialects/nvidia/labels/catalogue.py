"""The labels: from what is known of a machine to names and values. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from fairlead.backends.nvidia.records import Gpu, Look, Mig
from fairlead.dialects.nvidia.v1 import V1, Sharing
from fairlead.model.errors import FairleadError

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
    look: Look | None = None  # None: no driver
    machine: str = "unknown"
    classes: tuple[int | None, ...] = ()  # PCI class and sub-class of each GPU; None: not known
    cliques: tuple[tuple[str, int], ...] = ()  # of the fabric that GPUs are part of
    vgpus: tuple[Vgpu, ...] | None = ()  # None: could not be looked for
    timestamp: int | None = None


class BadLabels(FairleadError):
    """What is found cannot be labelled."""


def make_labels(facts: Facts, strategy: str, file: V1) -> tuple[dict[str, str], list[str]]:
    """The labels, and what was odd. BadLabels for a setting that cannot be met."""
    labels: dict[str, str] = {}
    notes: list[str] = []
    if facts.timestamp is not None:
        labels["gfd.timestamp"] = str(facts.timestamp)
    look = facts.look
    if look is not None and look.gpus:
        if strategy not in {"none", "single", "mixed"}:
            raise BadLabels(f"unknown strategy: {strategy}. --mig-strategy is none, single or mixed")
        labels["gpu.machine"] = sanitise(facts.machine)
        labels |= _versions(look)
        labels["mig.capable"] = _yes(any(gpu.mig_capable for gpu in look.gpus))
        labels["mps.capable"] = _yes(_mps_capable(look.gpus, file))
        labels |= _resources(look.gpus, strategy, file, notes)
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


def _versions(look: Look) -> dict[str, str]:
    parts = look.driver_version.split(".")
    if look.driver_version == UNKNOWN:
        parts = [UNKNOWN] * 3
    if len(parts) not in {2, 3}:
        raise BadLabels(f'Version "{look.driver_version}" does not match format "X.Y[.Z]"')
    major, minor, revision = (*parts, "")[:3]
    cuda_major, cuda_minor = str(look.cuda_version // 1000), str(look.cuda_version % 1000 // 10)
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


def _mps_capable(gpus: Iterable[Gpu], file: V1) -> bool:
    if file.mps is None:
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


def _resources(gpus: tuple[Gpu, ...], strategy: str, file: V1, notes: list[str]) -> dict[str, str]:
    labels = {} if strategy == "none" else {"mig.strategy": strategy}
    sharing = _Sharing.of(file)
    whole = _whole(gpus, sharing, notes)
    on = [gpu for gpu in gpus if gpu.mig_enabled]
    if strategy == "none" or not on:
        return labels | whole
    if strategy == "mixed":
        return labels | whole | _profiles(on, sharing)
    if trouble := _why_invalid(gpus, on):
        notes.append(f"--mig-strategy=single does not fit this node: {trouble}")
        arch = _architecture(whole_gpu) if (whole_gpu := _first(gpus)) else {}
        return labels | _invalid(on[0]) | arch
    return labels | whole | _single(on, sharing)


class _Sharing(Struct, frozen=True):
    kind: str = "none"
    block: Sharing | None = None

    @classmethod
    def of(cls, file: V1) -> _Sharing:
        if file.mps is not None:
            return cls("mps", file.mps)
        return cls("time-slicing", file.time_slicing) if file.time_slicing is not None else cls()

    def labels(self, resource: str, product: str, *, whole_of_mig: bool = False) -> dict[str, str]:
        entry = None
        if self.block is not None and not whole_of_mig:
            entry = next((one for one in self.block.resources if one.name == PREFIX + resource), None)
        shared = "-SHARED" if entry is not None and not entry.rename else ""
        replicas = entry.replicas if entry is not None else 1
        return {
            f"{resource}.replicas": "0" if whole_of_mig else str(replicas),
            f"{resource}.sharing-strategy": self.kind if entry is not None else "none",
            f"{resource}.product": product + shared,
        }


def _whole(gpus: Iterable[Gpu], sharing: _Sharing, notes: list[str]) -> dict[str, str]:
    """Of several models, the one with the most GPUs; of equals, the one with the lowest index."""
    models: dict[str, list[Gpu]] = {}
    for gpu in gpus:
        models.setdefault(gpu.name, []).append(gpu)
    if len(models) > 1:
        notes.append(f"there are GPUs of {len(models)} models; the labels are those of the most numerous")
    group = max(models.values(), key=len)
    # One that is not cut speaks for its model.
    gpu = next((one for one in group if not one.mig_enabled), group[0])
    labels = sharing.labels(GPU, sanitise(gpu.name), whole_of_mig=gpu.mig_enabled)
    labels["gpu.count"] = str(len(group))
    if gpu.memory_bytes:
        labels["gpu.memory"] = str(gpu.memory_bytes // _MIB)
    return labels | _architecture(gpu)


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


def _single(on: list[Gpu], sharing: _Sharing) -> dict[str, str]:
    pairs = list(_instances(on))
    gpu, mig = pairs[0]
    return _instance(GPU, gpu, mig, len(pairs), sharing)


def _profiles(on: list[Gpu], sharing: _Sharing) -> dict[str, str]:
    labels: dict[str, str] = {}
    kinds: dict[str, list[tuple[Gpu, Mig]]] = {}
    for gpu, mig in _instances(on):
        kinds.setdefault(mig.resource_profile, []).append((gpu, mig))
    for profile, pairs in kinds.items():
        gpu, mig = pairs[0]
        labels |= _instance(f"mig-{profile}", gpu, mig, len(pairs), sharing)
    return labels


def _instances(on: Iterable[Gpu]) -> Iterator[tuple[Gpu, Mig]]:
    return ((gpu, mig) for gpu in on for mig in gpu.migs)


def _instance(resource: str, gpu: Gpu, mig: Mig, count: int, sharing: _Sharing) -> dict[str, str]:
    cut = mig.slice
    numbers: Mapping[str, int] = {
        "count": count,
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
    labels = sharing.labels(resource, product)
    return labels | {f"{resource}.{name}": str(number) for name, number in numbers.items()}

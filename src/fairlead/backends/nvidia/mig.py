"""MIG instances of one GPU, read from the driver. Blocking: runs on the owner thread."""

from __future__ import annotations

from contextlib import suppress

from fairlead.backends.nvidia import profile
from fairlead.backends.nvidia.errors import NvmlError
from fairlead.backends.nvidia.kernel import Caps
from fairlead.backends.nvidia.nvml import CI_PROFILES, GI_PROFILES, Handle, Nvml
from fairlead.backends.nvidia.snapshot import MigAttributes, MigDevice


def read_migs(nvml: Nvml, gpu: Handle, minor: int, gpu_memory_bytes: int, caps: Caps) -> tuple[MigDevice, ...]:
    migs = []
    for index in range(nvml.mig_max(gpu)):
        handle = nvml.mig_handle(gpu, index)
        if handle is None:
            continue
        gi, ci = nvml.gi(handle), nvml.ci(handle)
        cut = nvml.mig_attributes(handle)
        name, placement = _name(nvml, gpu, gi, ci, cut, gpu_memory_bytes)
        memory_bytes = 0
        with suppress(NvmlError):
            memory_bytes = nvml.memory_bytes(handle)
        migs.append(
            MigDevice(
                nvml.uuid(handle),
                index,
                gi,
                ci,
                name,
                cut,
                memory_bytes,
                gi_cap=caps.get((minor, gi, None)),
                ci_cap=caps.get((minor, gi, ci)),
                placement=placement,
            )
        )
    return tuple(migs)


def _name(nvml: Nvml, gpu: Handle, gi: int, ci: int, cut: MigAttributes, gpu_memory_bytes: int) -> tuple[str, str]:
    """The profile's name and the placement. If the driver does not report the profile, the size names it."""
    gi_slices, ci_slices, memory_mib, mark, placement = cut.gi_slices, cut.ci_slices, cut.memory_mib, "", ""
    with suppress(NvmlError):
        instance = nvml.gi_handle(gpu, gi)
        info = nvml.gi_info(instance)
        placement = f"{info.placement.start}:{info.placement.size}"
        profiles = (nvml.gi_profile(gpu, number) for number in range(GI_PROFILES))
        found = next((one for one in profiles if one is not None and one.id == info.profileId), None)
        if found is not None:
            gi_slices, mark = profile.GI.get(found.number, (found.slices, ""))
            memory_mib = found.memory_mib
        said = nvml.ci_info(nvml.ci_handle(instance, ci)).profileId
        parts = (nvml.ci_profile(instance, number) for number in range(CI_PROFILES))
        part = next((one for one in parts if one is not None and one.id == said), None)
        if part is not None:
            ci_slices = profile.CI.get(part.number, part.slices)
    name = profile.name_profile(
        gi_slices=gi_slices,
        ci_slices=ci_slices,
        mark=mark,
        memory_mib=memory_mib,
        gpu_memory_bytes=gpu_memory_bytes,
    )
    return name, placement

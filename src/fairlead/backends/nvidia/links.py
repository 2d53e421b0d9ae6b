"""Links between GPUs: what NVML reports, as one score for each pair.

Reading them costs hundreds of calls on a large machine. It is done once for a set of GPUs, never for a request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

from msgspec import Struct

from fairlead.backends.nvidia.errors import NvmlError
from fairlead.backends.nvidia.kernel import sysfs_bus_id
from fairlead.backends.nvidia.nvml import LINK_TO_SWITCH, NOT_SUPPORTED, NVLINKS, Handle, Nvml
from fairlead.backends.nvidia.snapshot import Gpu
from fairlead.model.inventory import Links

# By the nearest common point of two GPUs: one board, one PCIe switch, several, a host bridge, a CPU, the whole machine.
LEVELS = {0: 60, 10: 50, 20: 40, 30: 30, 40: 20, 50: 10}
NVLINK = 100  # each link counts so much
NVLINK_MOST = 18  # and no more of them than this


class NvLinks(Struct, frozen=True):
    """The active NVLinks of one GPU."""

    to_gpus: Mapping[str, int] = {}  # by the other's bus id
    to_switches: int = 0


def score_links(gpus: Sequence[Gpu], levels: Mapping[tuple[str, str], int], ends: Mapping[str, NvLinks]) -> Links:
    """Scores by UUID. A link that one side only reports counts as reported: the other may be down or not asked.

    GPUs on NVSwitches reach each other through all their links, so a pair has as many as the one with fewer.
    """
    scores: dict[tuple[str, str], int] = {}
    for one, other in combinations(gpus, 2):
        here, there = ends.get(one.uuid, NvLinks()), ends.get(other.uuid, NvLinks())
        direct = max(here.to_gpus.get(other.bus_id, 0), there.to_gpus.get(one.bus_id, 0))
        joined = direct + min(here.to_switches, there.to_switches)
        level = LEVELS.get(levels.get((one.uuid, other.uuid), -1), 0)
        scores[one.uuid, other.uuid] = level + NVLINK * min(joined, NVLINK_MOST)
    return Links(scores)


def read_links(nvml: Nvml, handles: Mapping[str, Handle], gpus: Sequence[Gpu]) -> Links:
    """What cannot be read has no score. A GPU that fails a question harms no other pair."""
    levels: dict[tuple[str, str], int] = {}
    for one, other in combinations(gpus, 2):
        try:
            levels[one.uuid, other.uuid] = nvml.common_ancestor(handles[one.uuid], handles[other.uuid])
        except NvmlError:
            continue
    known = frozenset(gpu.bus_id for gpu in gpus)
    return score_links(gpus, levels, {gpu.uuid: _read_nvlinks(nvml, handles[gpu.uuid], known) for gpu in gpus})


def _read_nvlinks(nvml: Nvml, gpu: Handle, known: frozenset[str]) -> NvLinks:
    to_gpus: dict[str, int] = {}
    to_switches = 0
    for link in range(NVLINKS):
        try:
            if not nvml.nvlink_active(gpu, link):
                continue
            remote = sysfs_bus_id(nvml.nvlink_remote(gpu, link))
        except NvmlError as error:
            if error.code == NOT_SUPPORTED:
                continue  # numbers may have holes
            break
        if remote in known:
            to_gpus[remote] = to_gpus.get(remote, 0) + 1
        elif _is_switch(nvml, gpu, link):
            to_switches += 1
    return NvLinks(to_gpus, to_switches)


def _is_switch(nvml: Nvml, gpu: Handle, link: int) -> bool:
    """What is no GPU of ours may be one that we cannot see, or a CPU."""
    try:
        return nvml.nvlink_remote_kind(gpu, link) == LINK_TO_SWITCH
    except NvmlError:
        return True  # an old driver does not say

"""The two views of the audit that are files of the host. Blocking and bounded: for a thread of its own.

What cannot be read is Unknown, with the reason, and never an empty view. What the views mean is `policy.audit`'s.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from fairlead.fronts.checkpoint import NAME, is_written, load_entries
from fairlead.kit.hostroot import HostRoot
from fairlead.kit.processes import Walk
from fairlead.model.device import DeviceNode
from fairlead.model.edits import Edits, Mount
from fairlead.model.holdings import Unknown
from fairlead.policy.audit import DRIVER_PROGRAMS, Entry, Processes, Use
from fairlead.wire import deviceplugin as dp
from fairlead.wire.proto import DecodeError, decode

ENTRIES_MAX = 4_096
USES_MAX = 4_096
ANSWER_MAX_BYTES = 2**20
_UID = "[0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}"
POD = re.compile(rf"kubepods[^\n]*pod({_UID}|[0-9a-f]{{32}})")  # of a static pod: without dashes


def read_entries(directory: Path) -> tuple[Entry, ...] | Unknown:
    """What the kubelet has written down. No file: no container has had a device."""
    if not is_written(directory):
        return ()
    try:
        found = load_entries(directory, ENTRIES_MAX)
        return tuple(
            Entry(one.pod_uid, one.container, one.resource, one.slots, _edits(one.answer[:ANSWER_MAX_BYTES]))
            for one in found
        )
    except (OSError, ValueError, DecodeError) as error:
        why = error.strerror or str(error) if isinstance(error, OSError) else str(error)
        return Unknown(f"the kubelet's checkpoint {directory / NAME} cannot be read: {why:.200}")


def _edits(answer: bytes) -> Edits:
    said = decode(dp.ContainerAllocateResponse, answer)
    return Edits(
        env=said.envs,
        nodes=tuple(DeviceNode(one.host_path, one.container_path, one.permissions) for one in said.devices),
        mounts=tuple(Mount(one.host_path, one.container_path, one.read_only) for one in said.mounts),
        annotations=said.annotations,
        cdi=tuple(one.name for one in said.cdi_devices),
    )


def read_uses(root: HostRoot, nodes: Collection[str], allow: Sequence[str] = ()) -> Processes | Unknown:
    """Which processes have one of these nodes open, and which pods have a process at all. `allow`: globs of names."""
    walk = Walk(root)
    uses: list[Use] = []
    pods: set[str] = set()
    for process in walk:
        found = POD.search(walk.cgroup(process))
        uid = found[1].replace("_", "-") if found is not None else ""
        if uid:
            pods.add(uid)
        if (process.name in DRIVER_PROGRAMS and not uid) or any(fnmatchcase(process.name, each) for each in allow):
            continue
        uses += [Use(process.pid, process.name, path, uid) for path in sorted(set(process.links) & set(nodes))]
    if walk.lacks:
        return Unknown(walk.lacks)
    if len(uses) > USES_MAX:
        return Unknown(f"{len(uses)} processes use devices, over {USES_MAX}")
    return Processes(tuple(uses), frozenset(pods))

"""Merge the parts of one container's edits. Equal parts collapse; parts that contradict each other are an error.

The kubelet would keep the first value and log the second; a container must not start on a guess.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fairlead.model.device import DeviceNode
from fairlead.model.edits import NO_EDITS, Edits, Mount
from fairlead.model.errors import EditConflict


def merge(parts: Iterable[Edits]) -> Edits:
    useful = [part for part in parts if part]
    if not useful:
        return NO_EDITS
    env: dict[str, str] = {}
    for part in useful:
        if part.nodes or part.mounts or part.cdi or part.annotations:
            break
    else:  # nearly always
        if len(useful) == 1:
            return useful[0]
        for part in useful:
            _add(env, part.env, "environment variable")
        return Edits(env)
    annotations: dict[str, str] = {}
    nodes: dict[str, DeviceNode] = {}
    mounts: dict[str, Mount] = {}
    cdi: dict[str, None] = {}
    for part in useful:
        _add(env, part.env, "environment variable")
        _add(annotations, part.annotations, "annotation")
        for node in part.nodes:
            key = node.container_path or node.path
            known = nodes.setdefault(key, node)
            if known != node:
                raise EditConflict("device node", key, _describe(known), _describe(node))
        for mount in part.mounts:
            held = mounts.setdefault(mount.container_path, mount)
            if held != mount:
                raise EditConflict("mount", mount.container_path, _describe(held), _describe(mount))
        cdi.update(dict.fromkeys(part.cdi))
    return Edits(env, tuple(nodes.values()), tuple(mounts.values()), annotations, tuple(cdi))


def _add(into: dict[str, str], more: Mapping[str, str], what: str) -> None:
    for key, value in more.items():
        known = into.setdefault(key, value)
        if known != value:
            raise EditConflict(what, key, known, value)


def _describe(thing: DeviceNode | Mount) -> str:
    if isinstance(thing, DeviceNode):
        return f"{thing.path} ({thing.permissions})"
    return f"{thing.host_path} ({'ro' if thing.read_only else 'rw'})"

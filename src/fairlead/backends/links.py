"""Symbolic links below a root: followed inside it, so that no path leads out. Knows nothing of what is looked for."""

from __future__ import annotations

import os

MOST = 40  # as the kernel does: more is a loop


def follow(root: str, path: str) -> tuple[str, bool]:
    """The path without links, and whether all of it is there. Empty for a loop. Paths are as seen below the root."""
    steps = [part for part in reversed(path.split("/")) if part]
    done: list[str] = []
    there, links = True, 0
    while steps:
        part = steps.pop()
        if part in {".", ".."}:
            del done[len(done) - (part == "..") :]  # the root's parent is the root
            continue
        here = f"{root}/{'/'.join([*done, part])}"
        try:
            target = os.readlink(here)  # noqa: PTH115 - text
        except OSError:
            there = there and os.path.lexists(here)
            done.append(part)
            continue
        links += 1
        if links > MOST:
            return "", False
        if target.startswith("/"):
            done.clear()
        steps.extend(step for step in reversed(target.split("/")) if step)
    return "/" + "/".join(done), there

"""Replays recordings and prints what differs: `python -m tests.peers.nvidia [--ours] [NAME…]`.

A name is the beginning of a recording's: `269`, `269-ts-4`. Without names all of them are replayed. `--ours` asks
`fairlead nvidia` in place of NVIDIA's plugin v0.19.3.
"""

from __future__ import annotations

import asyncio
import sys

import msgspec

from tests.peers.nvidia.compare import differences
from tests.peers.nvidia.kubelet import NothingHappenedError
from tests.peers.nvidia.place import needs_root
from tests.peers.nvidia.programs import Program, nvidia_plugin, our_plugin
from tests.peers.nvidia.replay import UNPLAYABLE, replay
from tests.peers.nvidia.versions import as_v0_19
from tests.vectors import Vector, nvidia


def main(words: list[str]) -> int:
    ours = "--ours" in words
    names = tuple(word for word in words if not word.startswith("--"))
    if reason := needs_root():
        print(reason, file=sys.stderr)
        return 2
    chosen = [vector for name, vector in nvidia().items() if name not in UNPLAYABLE and name.startswith(names or "")]
    program = our_plugin() if ours else nvidia_plugin()
    equal = 0
    for vector in chosen:
        lines = asyncio.run(_differences(program, vector, ours=ours))
        equal += not lines
        print(f"{vector.file}: {'equal' if not lines else f'{len(lines)} differences'}", flush=True)
        for line in lines:
            print(f"    {line}")
    print(f"{equal} of {len(chosen)} equal")
    return 0 if equal == len(chosen) else 1


async def _differences(program: Program, vector: Vector, *, ours: bool) -> list[str]:
    recorded = vector.result if ours else as_v0_19(vector.result)
    try:
        return differences(recorded, await replay(program, msgspec.structs.replace(vector, result=recorded)))
    except NothingHappenedError as error:
        return [str(error)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

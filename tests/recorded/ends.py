"""How our command ends, run as a process with a recording's arguments and environment on its machine.

A process that serves, or waits for something, gets SIGTERM, as theirs did. What it serves is compared
elsewhere.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import msgspec

import fairlead
from tests.apiserver.server import ApiServer
from tests.peers.nvidia.kubelet import Kubelet, kubelet
from tests.recorded import amd, amd_labels, generic, gke_stage
from tests.recorded.outcome import Outcome
from tests.recorded.stage import eventually
from tests.vectors.amd import Case as AmdCase
from tests.vectors.amd_labels import Labelling
from tests.vectors.gke import Case as GkeCase

# What a daemon that stays says of itself while it serves nothing.
WAITS = (" nothing-offered ", " scan-failed ")


class End(msgspec.Struct, frozen=True):
    outcome: Outcome
    errors: str  # standard error


async def of_amd(case: AmdCase, root: Path) -> End:
    async def calls(end: Kubelet) -> None:
        """The recording's calls and steps: with two of them theirs ends."""
        for name, resource in case.outputs.get("resources", {}).items():
            ids = sorted(one.ID for one in end.followed[name].lists[0].devices)
            for answer in resource["answers"]:
                await amd.ask(answer, ids, end.followed[name])
        for step in case.outputs.get("steps", ()):
            await amd.take(step, end)

    async with amd.node_of(case, root) as (end, _):
        return await run(end, root, ["amd", *amd.words(case, root)], {}, calls)


async def of_gke(case: GkeCase, root: Path) -> End:
    async with gke_stage.staged(case, root) as stage:
        return await run(stage.end, root, ["gke", *stage.words()], {**stage.env(), **stage.machine.env})


async def of_generic(case: generic.Case, root: Path) -> End:
    generic.make_host(case, root / "host")
    (root / "dp").mkdir()
    async with kubelet(root / "dp") as end:
        await end.serve()
        return await run(end, root, ["generic", *generic.words(case, root)], case["inputs"]["env"])


async def of_labels(case: Labelling, server: ApiServer, root: Path) -> End:
    """AMD's labeller asks no kubelet. It has come as far as it can when it watches the node, or says what it lacks."""
    words = amd_labels.prepare(case, server, root)
    kubeconfig = server.write_kubeconfig(root / "kubeconfig")
    async with kubelet(root / "none") as end:
        await start(end, root, ["amd", "labels", *words], {**case.inputs.env, "KUBECONFIG": kubeconfig})

        def watches() -> bool:
            return any("watch" in one.query for one in server.requests)

        assert await eventually(lambda: end.exit_code is not None or watches() or bool(end.log)), "it says nothing"
        return await stop(end)


async def run(
    end: Kubelet,
    root: Path,
    words: Sequence[str],
    env: Mapping[str, str],
    calls: Callable[[Kubelet], Awaitable[None]] | None = None,
) -> End:
    def serves() -> bool:
        return bool(end.followed) and all(one.lists for one in end.followed.values())

    await start(end, root, words, env)
    await end.until(lambda: end.exit_code is not None or serves() or any(word in end.log for word in WAITS))
    if calls is not None and serves():
        await calls(end)
    return await stop(end)


async def start(end: Kubelet, root: Path, words: Sequence[str], env: Mapping[str, str]) -> None:
    own = {"PATH": "/usr/bin:/bin", "HOME": str(root), "PYTHONPATH": str(Path(fairlead.__file__).parents[1])}
    # The kubelet's end reads both streams as one: here standard error alone.
    alone = ["/bin/sh", "-c", 'exec "$@" >/dev/null', "sh", sys.executable, "-m", "fairlead", *words]
    await end.start(alone, {**own, "PYTHONDONTWRITEBYTECODE": "1", **env})


async def stop(end: Kubelet) -> End:
    runs_on = end.exit_code is None
    code = await end.stop()
    await end.close()  # all of its words are read
    return End({"runs on": runs_on, "exit": code}, end.log)

"""Settings and machines put together: what is asked of NVIDIA's plugin and of ours, side by side.

Owns the choice of combinations and the requests. A combination has the shape of a recording and is played like one.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import msgspec

from fairlead.model.resource import Resource as Ours
from tests.vectors import Vector, nvidia
from tests.vectors.types import Allocation, Preference, Resource, Wanted

COMBINATIONS = 120
SEED = 5
MIG = ("none", "single", "mixed")
LISTS = ("envvar", "volume-mounts", "cdi-annotations", "cdi-cri", "envvar,cdi-cri", "envvar,volume-mounts")
IDS = ("uuid", "index")
SHARING = {
    "none": "",
    "ts2": "timeSlicing: {resources: [{name: gpu, replicas: 2}, {name: mig-1g.5gb, replicas: 2}]}",
    "ts3fail": "timeSlicing: {failRequestsGreaterThanOne: true, resources: [{name: nvidia.com/gpu, replicas: 3}]}",
    "ts4rename": "timeSlicing: {renameByDefault: true, resources: [{name: nvidia.com/gpu, replicas: 4}]}",
    "mps2": "mps: {resources: [{name: nvidia.com/gpu, replicas: 2}]}",
}
# v0.19.3, which is built here, does not know the marks of their profiles (+me.all, -me, +gfx). Recordings of v0.20 do.
OLD_NAMES = ("a30x2-mig", "rtxpro-mig-gfx")
FAULTS = ("none", "none", "none", "no driver", "no GPU", "bad flag")


def combinations(count: int = COMBINATIONS, seed: int = SEED) -> dict[str, Vector]:
    """By a name that says what they are. The machines are those of the recordings with a whole driver around them."""
    rng = Random(seed)
    machines = {vector.driver: vector for name, vector in nvidia().items() if "-pair-" in name}
    broken = {"no driver": "077-no-library-fail", "no GPU": "023-default-zero-gpus"}
    found: dict[str, Vector] = {}
    while len(found) < count:
        machine = machines[rng.choice(sorted(machines))]
        fault = rng.choice(FAULTS)
        mig, ways, ids, sharing = rng.choice(MIG), rng.choice(LISTS), rng.choice(IDS), rng.choice(sorted(SHARING))
        specs = rng.random() < 0.5
        if mig == "mixed" and machine.driver.startswith(OLD_NAMES):
            continue
        flags = [f"--mig-strategy={mig}", f"--device-list-strategy={ways}", f"--device-id-strategy={ids}"]
        flags += ["--pass-device-specs"] if specs else []
        flags += ["--mps-root=/run/nvidia/mps"] if sharing == "mps2" else []
        flags += [word for word in machine.argv if word.startswith(("--driver-root", "--nvidia-driver-root"))]
        flags += ["--device-id-strategy=serial"] if fault == "bad flag" else []
        other = nvidia()[broken[fault]] if fault in broken else machine
        name = "-".join([other.driver.partition(".")[0], mig, ways, ids, sharing, *(["specs"] if specs else [])])
        found[name if fault in {"none", "no driver", "no GPU"} else f"{name}-{fault}"] = msgspec.structs.replace(
            machine,
            file=name,
            name=name,
            driver=other.driver,
            argv=["nvidia-device-plugin", *flags, "--config-file=/config/config.yaml"],
            env={},
            config_file=f"version: v1\nsharing: {{{SHARING[sharing]}}}\n",
            extra={"mps_control": "ok"} if sharing == "mps2" else {},
            result=msgspec.structs.replace(machine.result, resources={}, actions=None),
        )
    return found


def with_requests(vector: Vector, resources: dict[str, Ours]) -> Vector:
    """The combination, with what shall be asked of each resource that ours has."""
    asked = {
        name: Resource(
            allocate=[Allocation(request=request) for request in _allocations([slot.id for slot in resource.slots])],
            preferred=[
                Preference(request=[Wanted(available=available, must_include=must, size=size)])
                for available, must, size in _preferences([slot.id for slot in resource.slots])
            ],
        )
        for name, resource in resources.items()
    }
    return msgspec.structs.replace(vector, result=msgspec.structs.replace(vector.result, resources=asked))


def _allocations(slots: list[str]) -> Iterator[list[list[str]]]:
    yield [[slots[0]]]
    yield [[slots[-1]]]
    yield [slots[:2]]
    yield [["GPU-00000000-0000-0000-0000-000000000000"]]
    yield [[slots[0]], [slots[-1]]]


def _preferences(slots: list[str]) -> Iterator[tuple[list[str], list[str], int]]:
    for size in (1, 2, 4):
        if size <= len(slots) <= 16:
            yield slots, [], size
            yield slots[::-1], [], size
    if len(slots) > 2:
        yield slots, [slots[-1]], 2
        yield slots[1:], [], 2

"""Scenarios: pods of several containers."""

from fairlead.standin.conformance.rig import Rig
from fairlead.standin.conformance.scenario import Chapter, Failed

CHAPTER = Chapter("Pods of several containers")


@CHAPTER.required("C85", "gives each container its own", "A pod whose two containers ask for a device each runs.")
async def two_containers(rig: Rig) -> None:
    """There is one call for each container, in quick order. Neither may be taken for a repetition of the other."""
    rig.need(2)
    ask = {rig.resource: 1}
    pod = await rig.run_containers("has two containers with one device each", {"one": ask, "other": ask})
    one, other = (pod.containers[name].devices[rig.resource] for name in ("one", "other"))
    if set(one) & set(other):
        raise Failed(f"both containers got {one[0]!r}")


@CHAPTER.required(
    "C86", "serves an init container", "A pod whose init container and main container ask for a device runs."
)
async def init_container(rig: Rig) -> None:
    """The device of the init container is used again: Allocate comes twice for the same id, while the pod is new."""
    rig.need(1)
    ask = {rig.resource: 1}
    await rig.run_containers("has an init container with one device, too", {"main": ask}, init={"first": ask})

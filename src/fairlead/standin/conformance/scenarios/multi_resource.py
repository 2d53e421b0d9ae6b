"""Scenarios: a plugin that has several resources."""

from functools import partial

from fairlead.standin.conformance.rig import Rig
from fairlead.standin.conformance.scenario import Chapter, Failed, Skipped, some

CHAPTER = Chapter("Several resources")
MOST = 3  # resources that are refused, one after the other


@CHAPTER.required(
    "C90",
    "serves the others while one is refused",
    "A resource that is refused does not keep the others away, and comes when it is accepted.",
)
async def one_refused(rig: Rig) -> None:
    """One name is bad, one socket is late: the kubelet refuses that one, and the node needs the others all the same."""
    names = await _several(rig)
    for refused in names[:MOST]:
        others = [name for name in names if name != refused]
        rig.kubelet.faults.only, rig.kubelet.faults.refuse_register = refused, "not this one"
        await rig.kubelet.restart()
        await rig.until(partial(_all_stream, rig, others), f"{refused} was refused: {some(others)} did not register")
        exits = len(rig.exits)
        await rig.rest(rig.timeouts.refuse_s)
        if len(rig.exits) > exits:
            raise Failed(f"{refused} was refused, and the whole plugin ended with {rig.exits[-1]}")
        if not _all_stream(rig, others):
            raise Failed(f"{refused} was refused, and the streams of {some(others)} ended")
        rig.kubelet.faults.refuse_register = ""
        await rig.until(partial(_all_stream, rig, names), f"{refused} was refused and is welcome: it did not register")


@CHAPTER.advised("C91", "gives resources ids of their own", "No id is in the lists of two resources.")
async def own_ids(rig: Rig) -> None:
    """The kubelet looks for the pod of a device that broke by the id alone, and may find one of the other resource."""
    names = await _several(rig)
    seen: dict[str, str] = {}
    for name in names:
        for i in rig.kubelet.devices(name):
            if (other := seen.setdefault(i, name)) != name:
                raise Failed(f"{i!r} is in the lists of {other} and {name}")


async def _several(rig: Rig) -> list[str]:
    await rig.rest(rig.timeouts.quiet_s)  # they may come one after the other
    if len(rig.resources) < 2:
        raise Skipped("it has one resource")
    await rig.until(partial(_all_stream, rig, rig.resources), "not all of its resources are registered")
    return list(rig.resources)


def _all_stream(rig: Rig, names: list[str]) -> bool:
    return all(map(rig.streams, names))

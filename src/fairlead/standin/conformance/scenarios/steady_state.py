"""Scenarios: a long while in which nothing is done. All of them look at the same while."""

from fairlead.standin.conformance.rig import Rig
from fairlead.standin.conformance.scenario import Chapter, Failed, some

CHAPTER = Chapter("A while in which nothing happens")


@CHAPTER.required(
    "C80",
    "stays alive after a restart",
    "A plugin that registered after a restart runs on, for half a minute at least.",
)
async def stays_alive(rig: Rig) -> None:
    """A crash that comes seconds later takes the devices away from a node that has just got them back."""
    watched = await rig.watch()
    if watched.ended_after_s is not None:
        when = f"{watched.ended_after_s:.1f} s after it had registered"
        raise Failed(f"the kubelet restarted, and {when} it {watched.ending}")
    if not watched.streaming:
        raise Failed("the kubelet restarted, and the stream that it had opened then ended")


@CHAPTER.required("C81", "keeps its ids", "Ids do not come and go without a cause.")
async def same_ids(rig: Rig) -> None:
    """An id that goes takes the device from the pod that holds it. A device in trouble is listed as unhealthy."""
    watched = await rig.watch()
    for each in rig.lists[watched.first : watched.last]:
        if changed := sorted(set(each.ids) ^ set(watched.ids)):
            raise Failed(f"nothing happened for {watched.seconds:g} s, and other ids were listed: {some(changed)}")

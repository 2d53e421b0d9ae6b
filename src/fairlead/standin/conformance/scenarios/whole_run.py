"""Scenarios: what is true of the whole run. Played last."""

from fairlead.standin.conformance.exits import Exit
from fairlead.standin.conformance.rig import Rig
from fairlead.standin.conformance.scenario import Chapter, Failed

CHAPTER = Chapter("The whole run")


@CHAPTER.advised("C79", "never crashes", "In the whole run it did not crash over what a kubelet does.")
async def never_crashed(rig: Rig) -> str | None:
    """A crash is no way to cope: nothing is cleaned up, and its trace hides the reason. What it costs pods is C80's."""
    crashes = [each for each in rig.exits if each.crashed]
    if mine := [each for each in crashes if not each.provoked]:
        raise Failed(f"it crashed {_times(mine)}: {mine[0].crash}")
    return f"it crashed {_times(crashes)} over what no kubelet does: {crashes[0].crash}" if crashes else None


@CHAPTER.advised("C77", "never ends by itself", "In the whole run it ended only when the suite stopped it.")
async def never_ended(rig: Rig) -> None:
    """Ending is one way to cope: a DaemonSet starts it again, but with a longer pause each time, up to 5 minutes."""
    if mine := [each for each in rig.exits if not each.provoked and not each.crashed]:
        raise Failed(f"it ended {_times(mine)}, at last with {mine[-1]}")


def _times(ends: list[Exit]) -> str:
    count = "once" if len(ends) == 1 else f"{len(ends)} times"
    during = list(dict.fromkeys(each.during for each in ends if each.during))
    return f"{count} ({', '.join(during)})" if during else count

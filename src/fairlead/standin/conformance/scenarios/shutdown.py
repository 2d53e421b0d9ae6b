"""Scenarios: how a plugin ends, and what it leaves behind."""

import signal
import socket
import stat

from fairlead.standin.conformance.rig import Rig
from fairlead.standin.conformance.scenario import Chapter, Failed, some

CHAPTER = Chapter("Ending, and what is left behind")


@CHAPTER.required("C59", "ends on SIGTERM", "After SIGTERM it ends within 10 s.")
async def ends(rig: Rig) -> None:
    """After its grace period a container is killed, and whatever it was to clean up stays."""
    await _must_end(rig, signal.SIGTERM)


@CHAPTER.advised("C60", "ends on SIGINT", "After SIGINT it ends within 10 s.")
async def ends_on_interrupt(rig: Rig) -> None:
    """A user who runs it by hand presses Ctrl-C."""
    await _must_end(rig, signal.SIGINT)


@CHAPTER.required("C61", "ends while the kubelet is away", "SIGTERM works while it waits for a kubelet.")
async def ends_without_kubelet(rig: Rig) -> None:
    """A node is drained while its kubelet is down. A plugin that hangs in its retries holds up the shutdown."""
    await rig.kubelet.stop()
    await rig.rest(rig.timeouts.quiet_s)
    if not rig.plugin.alive:
        return  # it ended by itself, which is one way to wait
    await _must_end(rig, signal.SIGTERM)


@CHAPTER.advised("C78", "ends with a good code", "After SIGTERM its exit code is 0 or 143.")
async def good_code(rig: Rig) -> None:
    """Another code looks like a crash on every update of the DaemonSet. No pod is harmed."""
    if not rig.stops:
        await rig.stop_plugin(signal.SIGTERM)
    for ending in rig.stops:
        if ending.code not in {0, 128 + signal.SIGTERM, -signal.SIGTERM}:
            raise Failed(f"it ended with {ending}; its last words: {ending.last}")


@CHAPTER.advised("C62", "removes its socket", "After SIGTERM its socket file is gone.")
async def removes_socket(rig: Rig) -> None:
    """A dead socket looks like a plugin, to people and to programs."""
    path = rig.path
    await rig.stop_plugin(signal.SIGTERM)
    if path.exists():
        raise Failed(f"{path.name} is still there")


@CHAPTER.required(
    "C63", "starts after SIGKILL", "A socket left behind by its last life does not keep it from starting."
)
async def after_kill(rig: Rig) -> None:
    """The kernel or an operator may kill it, and nothing cleans up in between."""
    await rig.restart_plugin(signal.SIGKILL, "killed and started again")


@CHAPTER.required("C64", "leaves its neighbours alone", "Sockets, files and directories of others stay.")
async def neighbours(rig: Rig) -> None:
    """Other plugins live in the same directory, and the kubelet keeps its checkpoint there."""
    other = rig.kubelet.plugin_dir / "other.sock"
    other.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(other))
        listener.listen()
        await rig.restart_plugin(signal.SIGTERM)
        checkpoint = rig.kubelet.plugin_dir / "kubelet_internal_checkpoint"
        gone = [path.name for path in (other, checkpoint, *rig.neighbours()) if not path.exists()]
    other.unlink(missing_ok=True)
    if gone:
        raise Failed(f"no longer there: {some(gone)}")


@CHAPTER.advised("C65", "leaves no old sockets", "There is one socket for each resource, however its last lives ended.")
async def no_litter(rig: Rig) -> None:
    """Names with a counter or a time in them pile up until a kubelet starts, and each looks like a plugin."""
    await rig.kubelet.restart()  # it removes what other scenarios left
    await rig.until(lambda: rig.streaming, "the kubelet restarted: it did not register again")
    for number in (signal.SIGTERM, signal.SIGKILL):
        await rig.restart_plugin(number)
    resources = {call.resource for call in rig.kubelet.calls if call.method == "Register"}
    sockets = [path.name for path in rig.kubelet.plugin_dir.iterdir() if path.is_socket()]
    own = sorted(set(sockets) - {"kubelet.sock"})
    if len(own) > len(resources):
        raise Failed(f"{len(own)} sockets for {len(resources)} resources: {some(own)}")


@CHAPTER.advised("C66", "keeps its socket to itself", "Other users may not write to the socket.")
async def permissions(rig: Rig) -> None:
    """A user who can connect can call Allocate. The kubelet is root, so no other user needs to."""
    mode = stat.S_IMODE(rig.path.stat().st_mode)
    if mode & stat.S_IWOTH:
        raise Failed(f"its mode is {mode:o}: everybody may write")


async def _must_end(rig: Rig, number: signal.Signals) -> None:
    if wrong := await rig.stop_plugin(number):
        raise Failed(f"after {number.name} {wrong}")

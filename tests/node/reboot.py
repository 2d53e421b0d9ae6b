"""What a reboot does to a node: every container and every daemon ends, and what is on the disk stays."""

from __future__ import annotations

from tests.node.daemon import Fairlead
from tests.node.rig import sweep
from tests.node.rig.node import stop_kubelet
from tests.node.rig.places import BIN, PLUGINS

CHECKPOINT = PLUGINS / "kubelet_internal_checkpoint"


def switch_off(*daemons: Fairlead) -> None:
    stop_kubelet()
    for daemon in daemons:
        daemon.end()
        daemon.socket.unlink(missing_ok=True)  # /run does not outlast a boot
    sweep.remove_sandboxes(BIN / "ctr")
    assert CHECKPOINT.exists()

"""CDI specs for NVIDIA GPUs: what a container runtime must do so that a container can use one.

Written after a look at the driver and before the GPUs of that look are announced; never in an answer to the kubelet.
They stay when the plugin stops: a container that is started again needs them.
"""

from __future__ import annotations

from fairlead.backends.nvidia.cdi.specs import CLASSES, make_specs, wanted_classes
from fairlead.backends.nvidia.hostnodes import HostNodes, ReadNode, read_node
from fairlead.backends.nvidia.snapshot import Snapshot
from fairlead.backends.nvidia.spec import Options
from fairlead.backends.specdirectory import SpecDirectory

__all__ = ["publish"]


def publish(options: Options, snapshot: Snapshot, host_nodes: HostNodes, read: ReadNode = read_node) -> tuple[str, ...]:
    """Brings the directory up to date, and says which files changed. Blocks on files; BackendError if it cannot."""
    directory = SpecDirectory(options.cdi.directory)
    wanted = wanted_classes(options)
    written = directory.publish(make_specs(options, snapshot, host_nodes, read))
    # NVIDIA's plugin may serve this node by CDI under the same names.
    if not wanted and not directory.made(f"{options.cdi.vendor}/gpu"):
        return ()
    removed = directory.withdraw(f"{options.cdi.vendor}/{name}" for name in CLASSES if name not in wanted)
    return (*written, *removed)

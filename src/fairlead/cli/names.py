"""The names under which other systems' charts and manifests call their programs, and what each means here.

The image has a link to `fairlead` at each of these places, so that a pod runs with nothing changed but its image. Must
not load anything: the daemon's start comes through here.
"""

from __future__ import annotations

from collections.abc import Mapping

# Where a program is called, as the system's own image, chart or manifest has it: the command that takes its place.
PLACES: Mapping[str, tuple[str, ...]] = {
    # NVIDIA k8s-device-plugin: its chart calls these by name.
    "/usr/bin/nvidia-device-plugin": ("nvidia",),
    "/usr/bin/config-manager": ("nvidia", "config-manager"),
    "/usr/bin/gpu-feature-discovery": ("nvidia", "labels"),
    "/usr/bin/mps-control-daemon": ("nvidia", "mps-daemon"),
    # AMD: its manifests call ./k8s-device-plugin and ./k8s-node-labeller in /root.
    "/usr/bin/k8s-device-plugin": ("amd",),
    "/usr/bin/k8s-node-labeller": ("amd", "labels"),
    "/root/k8s-device-plugin": ("amd",),
    "/root/k8s-node-labeller": ("amd", "labels"),
    # GKE: its manifest gives the whole path.
    "/usr/bin/nvidia-gpu-device-plugin": ("gke",),
    # Aliyun's gpushare: its manifest calls the plugin by name; kubectl finds the other one.
    "/usr/bin/gpushare-device-plugin-v2": ("gpushare",),
    "/usr/bin/kubectl-inspect-gpushare": ("gpushare", "inspect"),
    "/usr/bin/kubectl-inspect-gpushare-v2": ("gpushare", "inspect"),
    "/usr/bin/gpushare-sche-extender": ("scheduler",),
    "/usr/bin/volcano-device-plugin": ("volcano",),
    # squat's image has its program in the root directory.
    "/usr/bin/generic-device-plugin": ("generic",),
    "/generic-device-plugin": ("generic",),
    "/usr/bin/smarter-device-management": ("smarter",),
}
COMMANDS: Mapping[str, tuple[str, ...]] = {place.rpartition("/")[2]: command for place, command in PLACES.items()}


def command_of(called: str) -> tuple[str, ...]:
    """The words that a program called so puts before its arguments. None for `fairlead`, and for any other name."""
    return COMMANDS.get(called.rpartition("/")[2], ())

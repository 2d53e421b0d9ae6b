"""GPUs whose memory an upper scheduler hands out: what doslab, gpushare and volcano have in common. Pure.

Each registers one resource, on a socket of a fixed name, and learns from annotations which GPU a container gets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from fairlead.dialects.goflags import FOREVER, BadFlag, Flag, Kind, Parsed
from fairlead.dialects.order import places_of
from fairlead.model.errors import UsageError

NODE_NAME = "NODE_NAME"
REST = "30s"  # the plugins that are replaced ask no GPU how it is; while all are well, ours need not do so every 5 s
# The plugins that are replaced know no limit, and neither do pods that were written for them.
PER_CONTAINER = 2**20

# On a pod that has another GPU than it was promised. Aliyun's extender books a pod once and releases it by what its
# annotation says then; doslab's scheduler books GPU objects. Neither sees that an annotation was changed.
ACTUAL = "fairlead.dev/actual-device"

KUBECONFIG = Flag(
    "kubeconfig", Kind.TEXT, "", help="Kubeconfig file. Left out: $KUBECONFIG, else the account of the pod."
)
UNIT_TOO_SMALL = Flag(
    "unit-too-small",
    Kind.TEXT,
    "grow",
    ("FAIRLEAD_UNIT_TOO_SMALL",),
    help="grow: a unit whose list the kubelet would not take is doubled until it does; journal and status tell it. "
    "refuse: it ends with an error that names a unit that fits.",
)
MAX_STALL = Flag(
    "max-stall",
    Kind.DURATION,
    None,
    ("FAIRLEAD_MAX_STALL",),
    help="How long a kubelet that restarts may be busy with the list while all of it is held, such as 500ms: the unit "
    "is doubled until it is no longer. Left out: the unit stays, and journal, status and plan tell how long it is.",
)


def memory(parsed: Parsed, unit: str, ids: str) -> dict[str, Any]:
    """BadFlag if nobody knows what to do with a unit that is too small."""
    word = str(parsed.values["unit-too-small"])
    if word not in {"grow", "refuse"}:
        raise BadFlag(f"--unit-too-small: {word!r} is not known. Use grow or refuse")
    made: dict[str, Any] = {"unit": unit, ("grow" if word == "grow" else "required"): True, "ids": ids}
    if (most_s := parsed.values["max-stall"]) is not None:
        if word == "refuse" or not 0 < most_s < FOREVER:
            raise BadFlag("--max-stall takes a time over 0, and a unit that may grow: not --unit-too-small=refuse")
        made["maxStall"] = most_s
    return made


def require_node(parsed: Parsed, environ: Mapping[str, str], whose: str) -> None:
    """Who asks what the flags mean need not stand on the node."""
    if not environ.get(NODE_NAME) and not parsed.values["print-config"]:
        raise UsageError(
            f"{NODE_NAME} is not set, and {whose} needs it. In the DaemonSet: "
            "env: [{name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]"
        )


def configure(
    parsed: Parsed,
    *,
    name: str,
    socket_name: str,
    backend: Mapping[str, Any],
    rule: Mapping[str, Any],
    amounts: Sequence[Mapping[str, Any]] = (),
    cluster: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    places = places_of(parsed)
    kubeconfig = str(parsed.values["kubeconfig"])
    config = {
        "backends": [{"kind": "nvidia", **backend}],
        "rules": [deepcopy(dict(rule))],  # the caller may change what it is given
        # As their plugins: whoever has set it before, and also for a GPU that is withdrawn just now.
        "amounts": [{**amount, "unusable": True, "adopt": True} for amount in amounts],
        "cluster": {**({"kubeconfig": kubeconfig} if kubeconfig else {}), **(cluster or {})},
        "kubelet": {
            "directory": places.plugin_dir,
            "socketName": socket_name,
            "podResources": places.pod_resources,
        },
        "health": {"restInterval": REST},
        "status": {"socket": places.status_socket},
        "instance": name,
    }
    return {key: value for key, value in config.items() if value}

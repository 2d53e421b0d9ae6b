"""GPUs whose memory a scheduler assigns: what doslab, gpushare and volcano have in common. Pure.

Each registers one resource, on a socket of a fixed name, and learns from annotations which GPU a container gets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from fairlead.dialects.goflags import FOREVER, BadFlag, Flag, Kind, Parsed
from fairlead.dialects.invocation import finish, place
from fairlead.model.errors import UsageError

NODE_NAME = "NODE_NAME"
REST = "30s"  # the plugins that are replaced ask no GPU how it is; while all are well, ours need not do so every 5 s
# The plugins that are replaced know no limit, and neither do pods that were written for them.
PER_CONTAINER = 2**20

KUBECONFIG = Flag(
    "kubeconfig",
    Kind.TEXT,
    "",
    into="cluster.kubeconfig",
    help="Kubeconfig file. Left out: $KUBECONFIG, else the account of the pod.",
)
UNIT_TOO_SMALL = Flag(
    "unit-too-small",
    Kind.TEXT,
    "grow",
    ("FAIRLEAD_UNIT_TOO_SMALL",),
    choices=("grow", "refuse"),
    help="grow: a unit whose list the kubelet would not accept is doubled until the kubelet accepts the list and can "
    "bear it; journal and status say so. refuse: it ends with an error that names a unit that fits.",
)
MAX_STALL = Flag(
    "max-stall",
    Kind.DURATION,
    None,
    ("FAIRLEAD_MAX_STALL",),
    help="How long a kubelet that restarts may be busy with the list while all of it is held, such as 500ms: the unit "
    "is doubled until it is no longer. 0: any time. Left out: a unit that fits stays, and journal, status and plan say "
    "how long; one that does not fit is doubled until it is 500ms at most.",
)


def choose(flag: Flag, value: str, origin: str = "", fallback: str = "", whose: str = "") -> tuple[str, list[str]]:
    """One of the flag's choices. `fallback` is what `whose` program takes another value for, and is noted."""
    origin = origin or f"--{flag.name}"
    if value in flag.choices:
        return value, []
    if not fallback:
        raise BadFlag(f"{origin}: {value!r:.80} is not known. Use {' or '.join(flag.choices)}")
    return fallback, [f"{origin}: {value!r:.80} is not known: it is {fallback}, as in {whose}"]


def memory(parsed: Parsed, unit: str, ids: str) -> dict[str, Any]:
    """BadFlag if it is not known what to do with a unit that is too small."""
    too_small, _ = choose(UNIT_TOO_SMALL, str(parsed.values["unit-too-small"]))
    made: dict[str, Any] = {"unit": unit, ("grow" if too_small == "grow" else "required"): True, "ids": ids}
    if (most_s := parsed.values["max-stall"]) is not None:
        if too_small == "refuse" or not 0 <= most_s < FOREVER:
            raise BadFlag("--max-stall takes a time, and a unit that may grow: not --unit-too-small=refuse")
        made["maxStall"] = most_s
    return made


def require_node(parsed: Parsed, environ: Mapping[str, str], whose: str) -> None:
    """UsageError without the name of the node. Printing the configuration needs none."""
    if not environ.get(NODE_NAME) and not parsed.values["print-config"]:
        raise UsageError(
            f"{NODE_NAME} is not set, and {whose} needs it. In the DaemonSet: "
            "env: [{name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]"
        )


def configure(
    flags: Sequence[Flag],
    parsed: Parsed,
    *,
    name: str,
    socket_name: str,
    backend: Mapping[str, Any],
    rule: Mapping[str, Any],
    amounts: Sequence[Mapping[str, Any]] = (),
    cluster: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    placed = place(flags, parsed.values)
    return finish(
        {
            **placed,
            "backends": [{"kind": "nvidia", **backend}],
            "rules": [deepcopy(dict(rule))],  # the caller may change what it is given
            # As their plugins: also when another program has set it before, and for a GPU that is withdrawn just now.
            "amounts": [{**amount, "unusable": True, "adopt": True} for amount in amounts],
            # Schedulers know a node's total otherwise: `fairlead scheduler` packs by what each GPU has.
            "cluster": {**placed.get("cluster", {}), "devices": True, **(cluster or {})},
            "kubelet": {**placed["kubelet"], "socketName": socket_name},
            "health": {"restInterval": REST},
            "instance": name,
        }
    )

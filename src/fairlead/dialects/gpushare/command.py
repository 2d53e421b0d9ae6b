"""`fairlead gpushare …`: from a command line and an environment to a configuration of ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fairlead.dialects.goflags import Flag, Kind
from fairlead.dialects.gpus import (
    KUBECONFIG,
    MAX_STALL,
    PER_CONTAINER,
    UNIT_TOO_SMALL,
    choose,
    configure,
    memory,
    require_node,
)
from fairlead.dialects.invocation import (
    GLOG,
    Invocation,
    Program,
    Translation,
    common_flags,
    help_flags,
    note_log_files,
    read_flags,
)
from fairlead.policy.pods.contract import GPUSHARE

SOURCE = "fairlead gpushare"
WHOSE = "Aliyun's plugin"
PREFIX = "ALIYUN_COM_GPU_MEM_"
THEIR_IGNORED_XIDS = (31, 43, 45)

# How pods are asked for at the kubelet.
KUBELET = (
    Flag("query-kubelet", Kind.BOOL, False, help="No effect: pods are followed at the API server."),
    Flag("kubelet-address", Kind.TEXT, "0.0.0.0", help="No effect, as --query-kubelet."),  # noqa: S104 - theirs
    Flag("kubelet-port", Kind.INT, 10250, help="No effect, as --query-kubelet."),
    Flag("client-cert", Kind.TEXT, "", help="No effect, as --query-kubelet."),
    Flag("client-key", Kind.TEXT, "", help="No effect, as --query-kubelet."),
    Flag("token", Kind.TEXT, "", help="No effect, as --query-kubelet.", secret=True),
    Flag("timeout", Kind.INT, 10, help="No effect, as --query-kubelet."),
)
MEMORY_UNIT = Flag(
    "memory-unit",
    Kind.TEXT,
    "GiB",
    choices=("GiB", "MiB"),
    help="GiB or MiB: what one unit of aliyun.com/gpu-mem is.",
)
FLAGS = (
    MEMORY_UNIT,
    Flag(
        "health-check",
        Kind.BOOL,
        None,
        help="true: XIDs count as in Aliyun's plugin. false: none is watched. Left out: as Fairlead's own table says.",
    ),
    Flag("mps", Kind.BOOL, False, help="No effect, as in Aliyun's plugin."),
    *KUBELET,
    *GLOG,
)
OWN = (*common_flags("gpushare", WHOSE), UNIT_TOO_SMALL, MAX_STALL, KUBECONFIG, *help_flags())

RULE: Mapping[str, Any] = {
    "assign": {
        "device": GPUSHARE.device,
        "by": "index",
        "perContainer": GPUSHARE.per_container,
        "time": GPUSHARE.time,
        "timeRequired": True,
        "assigned": GPUSHARE.assigned,
        "unassigned": ["false"],
        "afterBind": False,
        "actual": GPUSHARE.actual,
        "wait": "3s",
        "marks": {GPUSHARE.assigned: "true", GPUSHARE.time: "{nowNs}"},
        "onlyDevice": True,
        "nodeEnv": [{"label": "cgpu.disable.isolation", "value": "true", "env": {"CGPU_DISABLE": "true"}}],
    },
    "perContainer": PER_CONTAINER,
    "env": {
        f"{PREFIX}IDX": "{indexes}",
        f"{PREFIX}POD": "{podUnits}",
        f"{PREFIX}CONTAINER": "{units}",
        f"{PREFIX}DEV": "{deviceUnits}",
    },
}


class GpushareInvocation(Invocation, frozen=True):
    @property
    def source(self) -> str:
        return SOURCE

    def translate(self) -> Translation:
        require_node(self.parsed, self.environ, WHOSE)
        fallback = "GiB" if self.parsed.values["lenient"] else ""
        unit, notes = choose(MEMORY_UNIT, str(self.parsed.values["memory-unit"]), fallback=fallback, whose=WHOSE)
        rule = {"resource": GPUSHARE.resource, "memory": memory(self.parsed, f"1{unit}", "{id}-_-{n}"), **RULE}
        config = configure(
            OWN,
            self.parsed,
            name="gpushare",
            socket_name="aliyungpushare.sock",
            backend={"ids": "index", **self._health()},
            rule=rule,
            amounts=[{"resource": GPUSHARE.count, "perDevice": 1}],
        )
        return Translation(config, (*self._notes(), *notes))

    def _health(self) -> dict[str, Any]:
        wanted = self.parsed.values["health-check"]
        if wanted is None:
            return {}
        return {"health": {"ignoredXids": list(THEIR_IGNORED_XIDS) if wanted else "all"}}

    def _notes(self) -> Iterator[str]:
        values, given = self.parsed.values, self.parsed.given
        if values["mps"]:
            yield f"--mps has no effect, as in {WHOSE}. GPUs that are shared by MPS: fairlead nvidia"
        asked = [f"--{flag.name}" for flag in KUBELET if flag.name in given]
        if asked:
            yield (
                f"{', '.join(asked)}: no effect. Pods are followed at the API server, which tells of each at once; "
                "the kubelet is asked through its pod-resources socket who has what"
            )
        yield from note_log_files(given)


def read_command_line(args: Sequence[str], environ: Mapping[str, str]) -> GpushareInvocation:
    """BadFlag for what cannot be understood."""
    return GpushareInvocation(read_flags((*FLAGS, *OWN), args, environ, "--health-check=false"), environ)


PROGRAM = Program(
    SOURCE,
    "Aliyun's gpushare device plugin: its flags and contract, on Fairlead's engine.",
    (*FLAGS, *OWN),
    read_command_line,
    bad_flag=2,  # as Go's flag package ends
    not_offered="In flags: --memory-unit=GiB, or --unit-too-small=grow",
)

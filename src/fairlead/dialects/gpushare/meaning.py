"""What `fairlead gpushare …` means: from a command line and an environment to a configuration of ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fairlead.dialects.goflags import BadFlag, Flag, Kind
from fairlead.dialects.gpus import (
    ACTUAL,
    KUBECONFIG,
    MAX_STALL,
    PER_CONTAINER,
    UNIT_TOO_SMALL,
    configure,
    memory,
    require_node,
)
from fairlead.dialects.order import Meant, Order, last_flags, own_flags, read_flags

SOURCE = "fairlead gpushare"
WHOSE = "Aliyun's plugin"
DOMAIN = "aliyun.com/"
PREFIX = "ALIYUN_COM_GPU_MEM_"
UNITS = ("GiB", "MiB")
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
# Of the library that writes their log.
LOG_FILES = (
    Flag("log_dir", Kind.TEXT, "", help="No effect: the journal goes to standard error."),
    Flag("log_backtrace_at", Kind.TEXT, "", help="No effect."),
    Flag("vmodule", Kind.TEXT, "", help="No effect."),
)
FLAGS = (
    Flag("memory-unit", Kind.TEXT, "GiB", help="GiB or MiB: what one unit of aliyun.com/gpu-mem is."),
    Flag(
        "health-check",
        Kind.BOOL,
        None,
        help="true: XIDs count as in Aliyun's plugin. false: none is watched. Left out: as Fairlead's own table says.",
    ),
    Flag("mps", Kind.BOOL, False, help="No effect, as in Aliyun's plugin."),
    *KUBELET,
    Flag("logtostderr", Kind.BOOL, False, help="No effect: the journal goes to standard error anyway."),
    Flag("alsologtostderr", Kind.BOOL, False, help="No effect, as --logtostderr."),
    Flag("stderrthreshold", Kind.TEXT, "", help="No effect, as --logtostderr."),
    Flag("v", Kind.INT, 0, help="No effect: the journal holds the facts, whatever the level."),
    *LOG_FILES,
)
OWN = (*own_flags("gpushare", WHOSE), UNIT_TOO_SMALL, MAX_STALL, KUBECONFIG, *last_flags())

RULE: Mapping[str, Any] = {
    "assign": {
        "device": f"{PREFIX}IDX",
        "by": "index",
        "perContainer": "scheduler.framework.gpushare.allocation",
        "time": f"{PREFIX}ASSUME_TIME",
        "timeRequired": True,
        "assigned": f"{PREFIX}ASSIGNED",
        "unassigned": ["false"],
        "afterBind": False,
        "actual": ACTUAL,
        "wait": "3s",
        "marks": {f"{PREFIX}ASSIGNED": "true", f"{PREFIX}ASSUME_TIME": "{nowNs}"},
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


class GpushareOrder(Order, frozen=True):
    @property
    def source(self) -> str:
        return SOURCE

    def meant(self) -> Meant:
        require_node(self.parsed, self.environ, WHOSE)
        notes = list(self._notes())
        unit = str(self.parsed.values["memory-unit"])
        if unit not in UNITS:
            if not self.parsed.values["lenient"]:
                raise BadFlag(f"--memory-unit: {unit!r} is not known. Use {' or '.join(UNITS)}")
            notes.append(f"--memory-unit: {unit!r} is not known: it is GiB, as in {WHOSE}")
            unit = "GiB"
        rule = {"resource": f"{DOMAIN}gpu-mem", "memory": memory(self.parsed, f"1{unit}", "{id}-_-{n}"), **RULE}
        config = configure(
            self.parsed,
            name="gpushare",
            socket_name="aliyungpushare.sock",
            backend={"ids": "index", **self._health()},
            rule=rule,
            amounts=[{"resource": f"{DOMAIN}gpu-count", "perDevice": 1}],
        )
        return Meant(config, tuple(notes))

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
        files = [f"--{flag.name}" for flag in LOG_FILES if flag.name in given]
        if files:
            yield f"{', '.join(files)}: no effect. The journal goes to standard error"


def read(args: Sequence[str], environ: Mapping[str, str]) -> GpushareOrder:
    """BadFlag for what cannot be understood."""
    return GpushareOrder(read_flags((*FLAGS, *OWN), args, environ, "--health-check=false"), environ)

"""What `fairlead volcano …` means: from a command line, an environment and a config file to a configuration of ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fairlead.dialects.goflags import BadFlag, Flag, Kind
from fairlead.dialects.gpus import KUBECONFIG, MAX_STALL, PER_CONTAINER, UNIT_TOO_SMALL, configure, memory, require_node
from fairlead.dialects.order import Meant, Order, last_flags, own_flags, read_flags
from fairlead.dialects.volcano import v1beta1

SOURCE = "fairlead volcano"
WHOSE = "volcano's plugin"
DOMAIN = "volcano.sh/"
NUMBER = f"{DOMAIN}gpu-number"
THEIR_IGNORED_XIDS = (31, 43, 45)
DISABLE_HEALTH = "DP_DISABLE_HEALTHCHECKS"
FACTOR_MAX = 2**20  # a unit of a TiB

FLAGS = (
    Flag(
        "gpu-strategy",
        Kind.TEXT,
        "share",
        ("GPU_STRATEGY",),
        key=v1beta1.STRATEGY,
        help="share: volcano.sh/gpu-memory, by memory. number: volcano.sh/gpu-number, whole GPUs.",
    ),
    Flag(
        "gpu-memory-factor",
        Kind.INT,
        1,
        ("GPU_MEMORY_FACTOR",),
        key=v1beta1.FACTOR,
        help="How many MiB one unit of volcano.sh/gpu-memory is.",
    ),
    Flag("config-file", Kind.TEXT, "", ("CONFIG_FILE",), help="Volcano's config file, version v1beta1."),
)
OWN = (*own_flags("volcano", WHOSE), UNIT_TOO_SMALL, MAX_STALL, KUBECONFIG, *last_flags("v"))

ASSIGN: Mapping[str, Any] = {
    "device": f"{DOMAIN}gpu-index",
    "by": "index",
    "time": f"{DOMAIN}predicate-time",
    "assigned": f"{DOMAIN}gpu-assigned",
    "unassigned": ["", "false"],
    "afterBind": False,
    "wait": "10s",
    "marks": {f"{DOMAIN}gpu-assigned": "true"},
    "nodeLock": "gpu",
}


class VolcanoOrder(Order, frozen=True):
    @property
    def source(self) -> str:
        return str(self.parsed.values["config-file"]) or SOURCE

    def meant(self) -> Meant:
        require_node(self.parsed, self.environ, WHOSE)
        notes: list[str] = []
        strategy, factor = self._settings(notes)
        share = strategy == "share"
        config = configure(
            self.parsed,
            name="volcano",
            socket_name="volcano.sock",
            backend={"ids": "index", "health": {"ignoredXids": self._ignored()}},
            rule=self._by_memory(factor) if share else WHOLE,
            amounts=[{"resource": NUMBER, "perDevice": 1}] if share else [],
            cluster={"unhealthy": f"{DOMAIN}gpu-unhealthy-ids"},
        )
        return Meant(config, tuple(notes))

    def _by_memory(self, factor: int) -> dict[str, Any]:
        return {
            "resource": f"{DOMAIN}gpu-memory",
            "memory": memory(self.parsed, f"{factor}MiB", "{index}-{n}"),
            "assign": dict(ASSIGN),
            "perContainer": PER_CONTAINER,
            "env": {"VOLCANO_GPU_ALLOCATED": "{memoryTotalMib}", "VOLCANO_GPU_MEMORY_TOTAL": "{deviceMib}"},
        }

    def _settings(self, notes: list[str]) -> tuple[str, int]:
        """Flags over variables over the file over defaults. Theirs drops what the file says."""
        lenient = bool(self.parsed.values["lenient"])
        path = str(self.parsed.values["config-file"])
        file = v1beta1.load(path, lenient=lenient) if path else {}
        values: dict[str, Any] = dict(self.parsed.values)
        said = {flag.name: f"--{flag.name}" for flag in FLAGS}  # where a value stands
        for flag in FLAGS:
            if flag.key not in file or flag.name in self.parsed.given or file[flag.key] == flag.default:
                continue
            if lenient:
                notes.append(f"{path}: {flag.key} is not in force, as in {WHOSE}")
            else:
                notes.append(f"{path}: {flag.key} is in force. {WHOSE.capitalize()} reads and drops it")
                values[flag.name] = file[flag.key]
                said[flag.name] = f"{path}: {flag.key}"
        strategy, factor = str(values["gpu-strategy"]), int(values["gpu-memory-factor"])
        if strategy not in {"share", "number"}:
            if not lenient:
                raise BadFlag(f"{said['gpu-strategy']}: {strategy!r:.80} is not known. Use share or number")
            notes.append(f"{said['gpu-strategy']}: {strategy!r:.80} is not known: it is number, as in {WHOSE}")
            strategy = "number"
        if not 1 <= factor <= FACTOR_MAX:
            name = said["gpu-memory-factor"]
            raise BadFlag(f"{name}: {factor} MiB is no unit. Use a number from 1 to {FACTOR_MAX}")
        return strategy, factor

    def _ignored(self) -> str | list[int]:
        off = self.environ.get(DISABLE_HEALTH, "").lower()
        return "all" if off == "all" or "xids" in off else list(THEIR_IGNORED_XIDS)


WHOLE: Mapping[str, Any] = {
    "resource": NUMBER,
    "assign": ASSIGN,
    "env": {"VOLCANO_GPU_ALLOCATED": "{count}", "VOLCANO_GPU_MEMORY_TOTAL": "{deviceMib}"},
}


def read(args: Sequence[str], environ: Mapping[str, str]) -> VolcanoOrder:
    """BadFlag for what cannot be understood."""
    return VolcanoOrder(read_flags((*FLAGS, *OWN), args, environ, "--gpu-strategy=number"), environ)

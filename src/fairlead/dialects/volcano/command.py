"""`fairlead volcano …`: from a command line, an environment and a config file to a configuration of ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import UNSET

from fairlead.dialects import configfile
from fairlead.dialects.configfile import BadFile
from fairlead.dialects.goflags import BadFlag, Flag, Kind
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
from fairlead.dialects.invocation import Invocation, Program, Translation, common_flags, help_flags, merge, read_flags
from fairlead.kit.decoding import dotted, locate
from fairlead.policy.pods.contract import VOLCANO_MEMORY, VOLCANO_NUMBER

SOURCE = "fairlead volcano"
WHOSE = "volcano's plugin"
DOMAIN = "volcano.sh/"
NUMBER = VOLCANO_NUMBER.resource
THEIR_IGNORED_XIDS = (31, 43, 45)
DISABLE_HEALTH = "DP_DISABLE_HEALTHCHECKS"
FACTOR_MAX = 2**20  # a unit of a TiB

VERSION = "v1beta1"

STRATEGY = Flag(
    "gpu-strategy",
    Kind.TEXT,
    "share",
    ("GPU_STRATEGY",),
    key="flags.GPUStrategy",
    choices=("share", "number"),
    help="share: volcano.sh/gpu-memory, by memory. number: volcano.sh/gpu-number, whole GPUs.",
)
FACTOR = Flag(
    "gpu-memory-factor",
    Kind.INT,
    1,
    ("GPU_MEMORY_FACTOR",),
    key="flags.GPUMemoryFactor",
    help="How many MiB one unit of volcano.sh/gpu-memory is.",
)
FLAGS = (
    STRATEGY,
    FACTOR,
    Flag("config-file", Kind.TEXT, "", ("CONFIG_FILE",), help="Volcano's config file, version v1beta1."),
)
OWN = (*common_flags("volcano", WHOSE), UNIT_TOO_SMALL, MAX_STALL, KUBECONFIG, *help_flags("v"))

ASSIGN: Mapping[str, Any] = {
    "device": VOLCANO_MEMORY.device,
    "by": "index",
    "time": VOLCANO_MEMORY.time,
    "assigned": f"{DOMAIN}gpu-assigned",
    "unassigned": ["", "false"],
    "afterBind": False,
    "wait": "10s",
    "marks": {f"{DOMAIN}gpu-assigned": "true"},
    "nodeLock": "gpu",
}


class VolcanoInvocation(Invocation, frozen=True):
    @property
    def source(self) -> str:
        return str(self.parsed.values["config-file"]) or SOURCE

    def translate(self) -> Translation:
        require_node(self.parsed, self.environ, WHOSE)
        notes: list[str] = []
        strategy, factor = self._settings(notes)
        share = strategy == "share"
        config = configure(
            OWN,
            self.parsed,
            name="volcano",
            socket_name="volcano.sock",
            backend={"ids": "index", "health": {"ignoredXids": self._ignored()}},
            rule=self._by_memory(factor) if share else WHOLE,
            amounts=[{"resource": NUMBER, "perDevice": 1}] if share else [],
            cluster={"unhealthy": f"{DOMAIN}gpu-unhealthy-ids"},
        )
        return Translation(config, tuple(notes))

    def _by_memory(self, factor: int) -> dict[str, Any]:
        return {
            "resource": VOLCANO_MEMORY.resource,
            "memory": memory(self.parsed, f"{factor}MiB", "{index}-{n}"),
            "assign": dict(ASSIGN),
            "perContainer": PER_CONTAINER,
            "env": {"VOLCANO_GPU_ALLOCATED": "{memoryTotalMib}", "VOLCANO_GPU_MEMORY_TOTAL": "{deviceMib}"},
        }

    def _settings(self, notes: list[str]) -> tuple[str, int]:
        """Flags over variables over the file over defaults. Theirs drops what the file says."""
        values = self.parsed.values
        lenient, path = bool(values["lenient"]), str(values["config-file"])
        file = load(path, notes, lenient=lenient) if path else {}
        changed = [flag for flag in FLAGS if flag.key in file and file[flag.key] != flag.default]
        changed = [flag for flag in changed if flag.name not in self.parsed.given]
        end = f"is not in force, as in {WHOSE}" if lenient else f"is in force. {WHOSE.capitalize()} reads and drops it"
        notes += [f"{path}: {flag.key} {end}" for flag in changed]
        parsed = merge(() if lenient else changed, self.parsed, file, path)
        strategy, factor = str(parsed.values[STRATEGY.name]), int(parsed.values[FACTOR.name])
        from_file = {flag.name: f"{path}: {flag.key}" for flag in changed if not lenient}
        fallback = "number" if lenient else ""
        strategy, more = choose(STRATEGY, strategy, from_file.get(STRATEGY.name, ""), fallback, WHOSE)
        notes += more
        if not 1 <= factor <= FACTOR_MAX:
            origin = from_file.get(FACTOR.name, f"--{FACTOR.name}")
            raise BadFlag(f"{origin}: {factor} MiB is no unit. Use a number from 1 to {FACTOR_MAX}")
        return strategy, factor

    def _ignored(self) -> str | list[int]:
        off = self.environ.get(DISABLE_HEALTH, "").lower()
        return "all" if off == "all" or "xids" in off else list(THEIR_IGNORED_XIDS)


WHOLE: Mapping[str, Any] = {
    "resource": NUMBER,
    "assign": ASSIGN,
    "env": {"VOLCANO_GPU_ALLOCATED": "{count}", "VOLCANO_GPU_MEMORY_TOTAL": "{deviceMib}"},
}


def load(path: str, notes: list[str], *, lenient: bool) -> dict[str, Any]:
    """What the config file has, by key; only what is given. BadFile names everything that is wrong."""
    shape = configfile.shape("File", FLAGS, {"version": Any})
    text = configfile.load(path, "cannot be read")
    found = configfile.decode(text, path, shape, expected="version and flags", lenient=lenient, loose=False)
    problems = found.problems
    if found.content is not None and found.content.version not in (UNSET, "", VERSION):
        problems = [*problems, (("version",), f"unknown version: {found.content.version}. This reads {VERSION}")]
    if problems:
        raise BadFile(path, locate(text, problems))
    notes += [f"{path}: {dotted(key)}: unknown key, which is ignored, as in {WHOSE}" for key in found.dropped]
    return found.values(FLAGS)


def read_command_line(args: Sequence[str], environ: Mapping[str, str]) -> VolcanoInvocation:
    """BadFlag for what cannot be understood."""
    return VolcanoInvocation(read_flags((*FLAGS, *OWN), args, environ, "--gpu-strategy=number"), environ)


PROGRAM = Program(
    SOURCE,
    "Volcano's device plugin: its flags, environment, config file and contract, on Fairlead's engine.",
    (*FLAGS, *OWN),
    read_command_line,
    not_offered="In flags: --gpu-memory-factor, a number of MiB, or --unit-too-small=grow",
)

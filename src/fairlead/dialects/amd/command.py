"""`fairlead amd …`: from a command line and an environment to a configuration of ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from fairlead.dialects.goflags import Flag, Kind
from fairlead.dialects.invocation import (
    GLOG,
    Invocation,
    Program,
    Translation,
    common_flags,
    find_refused,
    finish,
    help_flags,
    note_log_files,
    place,
    read_flags,
)
from fairlead.model.errors import UsageError

SOURCE = "fairlead amd"
WHOSE = "AMD's plugin"
DOMAIN = "amd.com/"
SOCKET_NAME = "{domain}_{name}"  # without a suffix
PULSE_MAX_S = 24 * 3600
REPLICAS_MAX = 65536
# In AMD's documentation, and read by no program.
NOT_READ = ("AMD_GPU_DEVICE_COUNT", "CONFIG_FILE_PATH")

NAMING = Flag(
    "resource_naming_strategy",
    Kind.TEXT,
    "single",
    choices=("single", "mixed"),
    refusal="invalid resource naming strategy:",
    help="single: amd.com/gpu for GPUs and partitions alike, which must not differ. mixed: a resource for each kind of "
    "partition, such as amd.com/cpx_nps4.",
)
PULSE = Flag(
    "pulse",
    Kind.INT,
    0,
    into="health.probeInterval",
    convert=lambda seconds: f"{seconds}s" if seconds > 0 else "",
    help="Seconds between two looks at the health of the GPUs. 0: Fairlead's own; --health-checks=none: never.",
)
FLAGS = (PULSE, NAMING, *GLOG)

CHECKS = Flag(
    "health-checks",
    Kind.TEXTS,
    ("kfd", "nodes", "ras", "exporter"),
    ("FAIRLEAD_HEALTH_CHECKS",),
    choices=("kfd", "nodes", "ras", "exporter", "none"),
    into="backend.health.checks",
    convert=lambda checks: [check for check in checks if check != "none"],
    help="What makes a GPU unhealthy: some of kfd, nodes, ras and exporter, or none.",
)
REPLICAS = Flag(
    "replicas",
    Kind.INT,
    1,
    ("FAIRLEAD_REPLICAS",),
    help="How many containers share a GPU or a partition. They are not kept apart on it.",
)
BY_MODEL = Flag(
    "name-by-model",
    Kind.BOOL,
    False,
    ("FAIRLEAD_NAME_BY_MODEL",),
    help="Name resources after the product, such as amd.com/instinct-mi300x. With mixed: also after the partition.",
)
WAYS = Flag(
    "device-list-strategy",
    Kind.TEXTS,
    ("nodes",),
    ("FAIRLEAD_DEVICE_LIST_STRATEGY",),
    choices=("nodes", "cdi-annotations", "cdi-cri"),
    into="backend.ways",
    help="Some of nodes, cdi-annotations, cdi-cri: how a container gets its devices. CDI names are amd.com/gpu=<id>.",
)
OWN = (
    *common_flags("amd", WHOSE),
    REPLICAS,
    BY_MODEL,
    WAYS,
    Flag("cdi-dir", Kind.TEXT, "/var/run/cdi", into="backend.cdi.directory", help="Where CDI specs are written."),
    CHECKS,
    Flag(
        "exporter-socket",
        Kind.TEXT,
        "/var/lib/amd-metrics-exporter/amdgpu_device_metrics_exporter_grpc.socket",
        into="backend.health.exporter",
        help="The socket of AMD's metrics exporter.",
    ),
    Flag(
        "host-root",
        Kind.TEXT,
        "/",
        ("FAIRLEAD_HOST_ROOT",),
        into="backend.hostRoot",
        help="Where the host's /sys and /dev are seen.",
    ),
    Flag(
        "dev-root",
        Kind.TEXT,
        "",
        ("FAIRLEAD_DEV_ROOT",),
        into="backend.devRoot",
        help="Where /dev is on the host, for containers. Left out: where it always is.",
    ),
    *help_flags(),
)


class AmdInvocation(Invocation, frozen=True):
    @property
    def source(self) -> str:
        return SOURCE

    def translate(self) -> Translation:
        if problems := list(self._problems()):
            raise UsageError("; ".join(problems))
        placed = place((*FLAGS, *OWN), self.parsed.values)
        config = {
            **placed,
            "backends": [{"kind": "amd", **placed.pop("backend", {})}],
            "rules": list(self._rules()),
            "kubelet": {**placed["kubelet"], "socketName": SOCKET_NAME},
            "instance": "amd",
        }
        return Translation(finish(config), tuple(self._notes()))

    def _rules(self) -> Iterator[dict[str, Any]]:
        """From the most that a name can say of a device to the least: what a driver does not say is left out of it."""
        values = self.parsed.values
        mixed = values[NAMING.name] == "mixed"
        says = [*(["product"] if values[BY_MODEL.name] else []), *(["profile"] if mixed else [])]
        for known in (known for count in range(len(says), -1, -1) for known in combinations(says, count)):
            rule: dict[str, Any] = {"match": {"attributes": dict.fromkeys(known, "*")}} if known else {}
            rule["resource"] = DOMAIN + ("-".join(f"{{{one}}}" for one in known) or "gpu")
            if values[REPLICAS.name] > 1:
                rule["replicas"] = values[REPLICAS.name]
            if not mixed:
                rule["uniform"] = "profile"
            yield {**rule, "placement": "closest"}

    def _problems(self) -> Iterator[str]:
        values = self.parsed.values
        yield from find_refused((NAMING, WAYS, CHECKS), self.parsed, lenient=False)
        if values[PULSE.name] > PULSE_MAX_S or (values[PULSE.name] < 0 and not values["lenient"]):
            yield f"--pulse: {values[PULSE.name]} is no number of seconds. Use 0, or up to {PULSE_MAX_S}"
        if not 1 <= values[REPLICAS.name] <= REPLICAS_MAX:
            yield f"--replicas: {values[REPLICAS.name]} is no number of containers. Use 1 to {REPLICAS_MAX}"

    def _notes(self) -> Iterator[str]:
        for name in NOT_READ:
            if self.environ.get(name):
                yield f"{name} has no effect, as in {WHOSE}: all GPUs are offered. To offer some: fairlead run"
        yield from note_log_files(self.parsed.given)


def read_command_line(args: Sequence[str], environ: Mapping[str, str]) -> AmdInvocation:
    """BadFlag for what cannot be understood."""
    return AmdInvocation(read_flags((*FLAGS, *OWN), args, environ, "-pulse=10"), environ)


PROGRAM = Program(
    SOURCE,
    "AMD's GPU device plugin: its flags and contract, on Fairlead's engine.",
    (*FLAGS, *OWN),
    read_command_line,
    bad_flag=2,  # as Go's flag package ends
    not_offered="In flags: -resource_naming_strategy=mixed",
)

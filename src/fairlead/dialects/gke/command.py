"""`fairlead gke …`: from a command line, an environment and a GPU config file to a configuration of ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import field

from fairlead.dialects.configfile import BadFile
from fairlead.dialects.gke import flags
from fairlead.dialects.gke.flags import FLAGS, OWN
from fairlead.dialects.gke.gpuconfig import (
    ALWAYS_CRITICAL,
    GpuConfig,
    Sharing,
    check_size,
    parse_xids,
    read_config,
    read_divisor,
)
from fairlead.dialects.goflags import BadFlag
from fairlead.dialects.gpus import choose
from fairlead.dialects.invocation import GLOG, Invocation, Program, Translation, finish, place, read_flags

SOURCE = "fairlead gke"
RESOURCE = "nvidia.com/gpu"
XID_CONFIG = "XID_CONFIG"
SCAN = "10s"  # as theirs; a node that comes or goes is seen at once
MPS_PIPE = "/tmp/nvidia-mps"  # noqa: S108 - where their MPS daemon has it
MONITORED_XIDS = (48, 63, 64, 79, 119, 120, 123, 140)
VERSION = "cloud.google.com/cuda.driver-version"
VERSION_PARTS = {
    f"{VERSION}.full": "{driverVersion}",
    f"{VERSION}.major": "{driverVersion.0}",
    f"{VERSION}.minor": "{driverVersion.1}",
    f"{VERSION}.revision": "{driverVersion.2}",
}


class GkeInvocation(Invocation, frozen=True):
    read: list[GpuConfig | None] = field(default_factory=list)  # what the file said, each time it was read

    @property
    def source(self) -> str:
        return str(self.parsed.values[flags.GPU_CONFIG]) or SOURCE

    def translate(self) -> Translation:
        values = self.parsed.values
        choose(next(flag for flag in OWN if flag.name == flags.DISCOVERY), str(values[flags.DISCOVERY]))
        gpus, notes = self._read_config()
        divisor, note = read_divisor(str(values[flags.DIVISOR_FILE]))
        notes += [note] if note else []
        placed = place((*FLAGS, *OWN), values)
        config = {
            **placed,
            "backends": [self._backend(placed["backend"], gpus, divisor, notes)],
            "rules": [self._rule(gpus.sharing)],
            "cluster": {**placed.get("cluster", {}), **self._cluster(notes)},
            "kubelet": {**placed["kubelet"], "socketName": "nvidiaGPU-{started}.sock"},
            "scan": {**placed.get("scan", {}), "interval": SCAN},
            "instance": "gke",
        }
        if values[flags.METRICS]:
            own = placed.get("http", {})
            listen, names = f":{values[flags.METRICS_PORT]}", ["gke", *own.get("names", ())]
            config["http"] = {"listen": listen, "page": False, "usage": True, **own, "names": names}
        del config["backend"]
        return Translation(finish(config), tuple(notes))

    def _read_config(self) -> tuple[GpuConfig, list[str]]:
        """At the start a wrong part is left out, as with theirs. Later it is an error: what is in force stays."""
        gpus, found = read_config(self.source)
        if self.read and (found.wrong or (gpus is None and self.read[-1] is not None)):
            raise BadFile(self.source, found or ["there is no such file any more. Restart to go on without it"])
        self.read.append(gpus)
        return gpus or GpuConfig(), [f"{self.source}: {note}" for note in found]

    def _backend(self, placed: Mapping[str, Any], gpus: GpuConfig, divisor: int, notes: list[str]) -> dict[str, Any]:
        made = {"kind": "nvidia", **placed, "naming": "minor", "ways": [], "nodes": True, "permissions": "mrw"}
        if gpus.partition_size:
            count = check_size(gpus.partition_size, self.source)
            made |= {"mig": "mixed", "partition": {"profile": gpus.partition_size, "count": count}}
        elif divisor > 1:
            made["instanceNodes"] = True
        if gpus.sharing is not None and gpus.sharing.strategy == "mps":
            control = str(self.parsed.values[flags.MPS_CONTROL])
            made["mps"] = {"clients": gpus.sharing.clients, "pipe": MPS_PIPE, "control": control}
        if not self.parsed.values[flags.HEALTH]:
            return made | {"health": {"ignoredXids": "all"}}
        more, note = parse_xids(self.environ.get(XID_CONFIG, ""))
        notes += [note] if note else []
        return made | {"health": {"onlyXids": sorted({ALWAYS_CRITICAL, *gpus.xids, *more})}}

    def _rule(self, sharing: Sharing | None) -> dict[str, Any]:
        values = self.parsed.values
        mounts: list[dict[str, Any]] = [
            {"host": str(values[host]), "container": str(values[container])}
            for host, container in (
                (flags.HOST_PATH, flags.CONTAINER_PATH),
                (flags.HOST_VULKAN, flags.CONTAINER_VULKAN),
            )
        ]
        rule: dict[str, Any] = {"resource": RESOURCE, "mounts": mounts}
        if sharing is None:
            return rule
        rule |= {"replicas": sharing.clients, "ids": "{id}/vgpu{n}", "placement": "spread"}
        if sharing.strategy == "mps":
            mounts.append({"host": MPS_PIPE, "readOnly": False})
        else:
            rule["perContainer"] = 1
        return rule

    def _cluster(self, notes: list[str]) -> dict[str, Any]:
        values = self.parsed.values
        node = str(values[flags.NODE])
        made: dict[str, Any] = {}
        if values[flags.HEALTH]:
            made |= {
                "condition": {"type": "XidCriticalError", "codes": [f"xid-{xid}" for xid in MONITORED_XIDS]},
                "events": {
                    "reason": "XIDError",
                    "component": "nvidia-gpu-device-plugin",
                    "message": "Caught XID error, XID={number}",
                    "codes": ["xid-*"],
                },
            }
        if values[flags.PUBLISH] and not node:
            notes.append(
                f"--{flags.PUBLISH}: NODE_NAME is not set, and no annotation is written. Set it in the DaemonSet"
            )
        elif values[flags.PUBLISH]:
            made |= {"annotate": dict(VERSION_PARTS), "fieldManager": "gpu-device-plugin"}
        if made and node:
            made["node"] = node
        elif made:
            made["nodeMetadata"] = str(values[flags.METADATA])
        return made


def read_command_line(args: Sequence[str], environ: Mapping[str, str]) -> GkeInvocation:
    """BadFlag for what cannot be understood."""
    parsed = read_flags((*FLAGS, *GLOG, *OWN), args, environ, "-plugin-directory=/device-plugin")
    for flag in FLAGS:
        if flag.name.endswith("-path") and not str(parsed.values[flag.name]).startswith("/"):
            raise BadFlag(f"-{flag.name}: {parsed.values[flag.name]!r:.80} must be an absolute path")
    return GkeInvocation(parsed, environ)


PROGRAM = Program(
    SOURCE,
    "Google's device plugin for NVIDIA GPUs on GKE: its flags, config file and contract, on Fairlead's engine.",
    (*FLAGS, *GLOG, *OWN),
    read_command_line,
    bad_flag=2,  # as Go's flag package ends
)

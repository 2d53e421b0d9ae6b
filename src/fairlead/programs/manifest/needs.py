"""What a configuration needs of its pod: directories of the host, how privileged it is, rights at the API server.

Owns the reasons. Reads a configuration as plain data, whoever wrote it; knows nothing of manifests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

from msgspec import Struct

from fairlead.backends.amd.spec import EXPORTER_SOCKET
from fairlead.cluster.rbac import FEATURES, Rule
from fairlead.config.spec import KUBELET_ROOT, KubeletSpec

HOST = "/host"  # where the host's /dev and /sys are mounted, so that the container keeps its own
MPS_ROOT = "/run/nvidia/mps"
CDI = "/var/run/cdi"
_TOLD = ("annotate", "condition", "devices", "events", "unhealthy")

Config = Mapping[str, Any]


class Level(StrEnum):
    """How much the container may do on its node."""

    RESTRICTED = "restricted"  # no capability, no escalation
    SYS_ADMIN = "sys-admin"
    PRIVILEGED = "privileged"


class Directory(Struct, frozen=True):
    """A directory of the host that the container sees."""

    name: str
    host: str
    path: str
    read_only: bool = False
    type: str = ""


class Needs(Struct, frozen=True):
    directories: tuple[Directory, ...]
    level: Level
    features: tuple[str, ...]  # of `fairlead.cluster.rbac`
    nvidia: bool  # NVIDIA's runtime must give it the driver

    @property
    def rules(self) -> tuple[Rule, ...]:
        """Each resource once, with all verbs that a feature needs."""
        verbs: dict[tuple[str, str], set[str]] = {}
        for feature in self.features:
            for rule in FEATURES[feature]:
                verbs.setdefault((rule.group, rule.resource), set()).update(rule.verbs)
        return tuple(Rule(*key, tuple(sorted(verbs[key]))) for key in sorted(verbs))


def find_needs(config: Config) -> Needs:
    backends: Sequence[Mapping[str, Any]] = config.get("backends") or ()
    return Needs(
        (*_kubelet(config.get("kubelet") or {}), *_unique(_directories(backends))),
        max((_level(one) for one in backends), key=list(Level).index, default=Level.RESTRICTED),
        tuple(sorted(set(_features(config)))),
        any(one.get("kind") == "nvidia" for one in backends),
    )


def below_host(config: Config) -> dict[str, Any]:
    """The same configuration, whose backends look for the host below HOST unless they name another place."""
    moved = [
        {**one, "hostRoot": one.get("hostRoot") or HOST} if one.get("kind") in {"amd", "paths"} else dict(one)
        for one in config.get("backends") or ()
    ]
    return {**config, "backends": moved}


def _kubelet(kubelet: Mapping[str, Any]) -> Iterator[Directory]:
    usual = KubeletSpec()
    yield Directory("device-plugins", usual.directory, kubelet.get("directory") or usual.directory)
    asked = kubelet.get("podResources", usual.pod_resources)
    if asked:
        yield Directory("pod-resources", f"{KUBELET_ROOT}/pod-resources", asked.rpartition("/")[0], read_only=True)
    if kubelet.get("registration") == "watcher":
        found = kubelet.get("watcherDirectory") or usual.watcher_directory
        yield Directory("plugins-registry", usual.watcher_directory, found)


def _directories(backends: Sequence[Mapping[str, Any]]) -> Iterator[Directory]:
    for one in backends:
        kind, root = one.get("kind"), str(one.get("hostRoot") or "").rstrip("/")
        if kind in {"amd", "paths"}:
            yield Directory("dev", "/dev", f"{root}/dev", read_only=True)
            yield Directory("sys", "/sys", f"{root}/sys", read_only=True)
        if kind == "amd":
            exporter = EXPORTER_SOCKET.rpartition("/")[0]
            yield Directory("exporter", exporter, exporter, type="DirectoryOrCreate")
        if kind == "nvidia":
            yield from _nvidia(one)
        if any(str(way).startswith("cdi-") for way in one.get("ways") or ()):
            specs = (one.get("cdi") or {}).get("directory") or CDI
            yield Directory("cdi", specs, specs, type="DirectoryOrCreate")


def _nvidia(one: Mapping[str, Any]) -> Iterator[Directory]:
    driver = one.get("driverRoot") or "/"
    if driver != "/":
        yield Directory("driver-root", driver, one.get("driverRootMount") or "/driver-root", True, "Directory")
    if root := (one.get("mps") or {}).get("root"):
        yield Directory("mps-root", MPS_ROOT, root, type="DirectoryOrCreate")
        yield Directory("mps-shm", f"{MPS_ROOT}/shm", "/dev/shm", type="DirectoryOrCreate")  # noqa: S108 - MPS' own


def _unique(found: Iterator[Directory]) -> Iterator[Directory]:
    by_name = {one.name: one for one in found}
    yield from (by_name[name] for name in sorted(by_name))


def _level(one: Mapping[str, Any]) -> Level:
    if one.get("kind") == "amd":
        return Level.PRIVILEGED  # the kernel shows a KFD node only to a process that may use its GPU
    if one.get("kind") != "nvidia":
        return Level.RESTRICTED
    if one.get("nodes") or (one.get("mps") or {}).get("managed"):
        return Level.PRIVILEGED  # device nodes of GPUs are looked at, or control daemons started
    mig = (one.get("mig") or "none") != "none"
    return Level.SYS_ADMIN if mig or "volume-mounts" in (one.get("ways") or ()) else Level.RESTRICTED


def _features(config: Config) -> Iterator[str]:
    if config.get("amounts"):
        yield "the daemon with `amounts`"
    for rule in config.get("rules") or ():
        if assign := rule.get("assign"):
            yield "the daemon with `assign`"
            yield from (f"the daemon with `assign.{key}`" for key in ("nodeEnv", "nodeLock") if assign.get(key))
    cluster = config.get("cluster") or {}
    yield from (f"the daemon with `cluster.{key}`" for key in _TOLD if cluster.get(key))

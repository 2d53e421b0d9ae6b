"""From a dialect's command line, or from a configuration, to what is to be run.

Owns what is different about each dialect. What its configuration says is asked of the dialect itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from fairlead.config.load import build
from fairlead.dialects.invocation import Invocation, Program
from fairlead.kit import documents, files
from fairlead.model.errors import ConfigError, UsageError
from fairlead.programs.manifest.needs import HOST, Directory, Level, Needs, below_host, find_needs
from fairlead.programs.manifest.objects import CONFIG, Object, Order, exists, one_of

PLACEHOLDER = "node"  # a dialect wants the name of its node; each pod has its own
_FILES = ("config-file", "config")  # flags that name a file of the operator
_NVIDIA = (
    {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
    {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "compute,utility"},
)
_GKE_DIRECTORIES = (
    Directory("dev", "/dev", "/dev"),
    Directory("driver", "/home/kubernetes/bin/nvidia", "/usr/local/nvidia", type="Directory"),
    Directory("gpu-config", "/etc/nvidia", "/etc/nvidia", read_only=True, type="DirectoryOrCreate"),
)
_XIDS = {"name": "xid-config", "key": "HealthCriticalXid", "optional": True}


class Extra(Struct, frozen=True):
    """What a dialect needs beyond its configuration."""

    terms: tuple[Object, ...] = ()
    tolerations: tuple[Object, ...] = ()
    env: tuple[Object, ...] = ()
    directories: tuple[Directory, ...] = ()
    host_root: bool = False  # it has --host-root
    listen: str = "FAIRLEAD_HTTP"
    privileged: bool = False


EXTRAS: Mapping[str, Extra] = {
    "nvidia": Extra(
        terms=(
            one_of("feature.node.kubernetes.io/cpu-model.vendor_id", ["NVIDIA"]),
            one_of("feature.node.kubernetes.io/pci-10de.present", ["true"]),
            one_of("nvidia.com/gpu.present", ["true"]),
        ),
        env=_NVIDIA,
    ),
    "amd": Extra(host_root=True),
    "gke": Extra(
        terms=(exists("cloud.google.com/gke-accelerator"),),
        tolerations=tuple({"operator": "Exists", "effect": effect} for effect in ("NoSchedule", "NoExecute")),
        env=({"name": "XID_CONFIG", "valueFrom": {"configMapKeyRef": _XIDS}},),
        directories=_GKE_DIRECTORIES,
        privileged=True,  # NVML opens the GPUs, and no runtime of NVIDIA's hands them over
    ),
    "generic": Extra(host_root=True, listen="LISTEN"),
    "smarter": Extra(terms=(one_of("smarter-device-manager", ["enabled"]),), host_root=True),
    "gpushare": Extra(terms=(one_of("gpushare", ["true"]),), env=_NVIDIA),
    "volcano": Extra(env=_NVIDIA),
    "doslab": Extra(env=_NVIDIA),
}


def order_of_config(text: str, source: str) -> Order:
    """ConfigError names every fault of the configuration."""
    raw = documents.parse(text, source)
    build(dict(raw) if isinstance(raw, dict) else {}, source, text=text)
    if not isinstance(raw, dict) or not raw.get("backends"):
        raise ConfigError(source, ["it has no backends: nothing would be found"])
    config = below_host(raw)
    needs = find_needs(config)
    return Order(
        ("run", f"--config={CONFIG}/fairlead.yaml"),
        needs,
        files={"fairlead.yaml": documents.to_yaml(config)},
        env=_NVIDIA if needs.nvidia else (),
    )


def order_of_dialect(dialect: str, args: Sequence[str]) -> Order:
    """BadFlag and ConfigError as the dialect itself raises them."""
    if dialect not in EXTRAS:
        raise UsageError(f"no dialect {dialect!r}. There are: {', '.join(EXTRAS)}")
    extra = EXTRAS[dialect]
    program: Program = import_module(f"fairlead.dialects.{dialect}.command").PROGRAM
    words = list(args)
    if extra.host_root and not any(word.lstrip("-").startswith("host-root") for word in words):
        words.insert(0, f"--host-root={HOST}")
    invocation = program.read(words, {"NODE_NAME": PLACEHOLDER})
    config = invocation.translate().config
    build(dict(config), invocation.source)
    command, kept = _carry_file(invocation, words)
    return Order(
        (dialect, *command),
        _with_extra(find_needs(config), extra),
        files=kept,
        env=extra.env,
        terms=extra.terms,
        tolerations=extra.tolerations,
        listen=extra.listen,
        host_dev=any(one.path == "/dev" for one in extra.directories),
    )


def _with_extra(needs: Needs, extra: Extra) -> Needs:
    return replace(
        needs,
        directories=(*needs.directories, *extra.directories),
        level=Level.PRIVILEGED if extra.privileged else needs.level,
    )


def _carry_file(invocation: Invocation, words: list[str]) -> tuple[list[str], dict[str, str]]:
    """A config file that a flag names goes into the manifest, and the flag names its place there."""
    given: Mapping[str, Any] = invocation.parsed.values
    for flag in _FILES:
        path = str(given.get(flag) or "")
        if not path or flag not in invocation.parsed.given:
            continue
        name = path.rpartition("/")[2]
        kept = [
            word
            for index, word in enumerate(words)
            if word.lstrip("-").partition("=")[0] != flag
            and not (word == path and index and words[index - 1].lstrip("-") == flag)
        ]
        return [*kept, f"--{flag}={CONFIG}/{name}"], {name: files.read_text(path)}
    return words, {}

"""From what NVIDIA's plugin would run with to a configuration of ours. Pure: settings in, plain data out."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from fairlead.dialects.nvidia.flags import KUBELET_SOCKET, PROGRAM
from fairlead.dialects.nvidia.offers import Offer, list_offers
from fairlead.dialects.nvidia.settings import Settings
from fairlead.dialects.nvidia.v1 import BadFile
from fairlead.dialects.order import Meant, Places

SOCKET_NAME = "nvidia-{name}.sock"
MPS_IN_CONTAINER = "/mps"
REST = "30s"  # NVIDIA's plugin asks no GPU how it is; while all are well, ours need not do so every few seconds
_PLACEMENT = {"distributed": "aligned", "packed": "pack"}


def translate(
    settings: Settings, health: Mapping[str, Any], places: Places, source: str, *, also_whole: bool = False
) -> Meant:
    """BadFile if the sharing block names what cannot be there."""
    notes: list[str] = []
    rules = _rules(settings, notes, source, also_whole=also_whole)
    if problems := list(_mps_problems(settings, rules)):
        raise BadFile(source, problems)
    config: dict[str, Any] = {
        "backends": [_backend(settings, health, rules)],
        "rules": rules,
        "kubelet": _kubelet(settings, places),
        "scan": {"required": True} if settings.fail_on_init_error else {},
        "health": {"restInterval": REST},
        "status": {"socket": places.status_socket},
        "instance": "nvidia",
    }
    return Meant({key: value for key, value in config.items() if value}, tuple(notes))


# --- Backend ----------------------------------------------------------------------------------------------------------


def _backend(settings: Settings, health: Mapping[str, Any], rules: list[dict[str, Any]]) -> dict[str, Any]:
    wide = {
        "discovery": (settings.device_discovery_strategy, "auto"),
        "mig": (settings.mig_strategy, "none"),
        "driverRoot": (settings.driver_root, "/"),
        "driverRootMount": (_mount(settings.driver_root_ctr_path), "/driver-root"),
        "devRoot": (settings.dev_root, ""),
        "ways": (list(dict.fromkeys(settings.device_list_strategy)), ["envvar"]),
        "ids": (settings.device_id_strategy, "uuid"),
        "nodes": (settings.pass_device_specs, False),
        "gdrcopy": (settings.gdrcopy_enabled, False),
        "gds": (settings.gds_enabled, False),
        "mofed": (settings.mofed_enabled, False),
        "imex": (_imex(settings), {}),
        "cdi": (_cdi(settings), {}),
        "mps": (_mps(settings, rules), {}),
        "health": (dict(health), {}),
    }
    return {"kind": "nvidia", **{key: value for key, (value, default) in wide.items() if value != default}}


def _mount(path: str) -> str:
    """As a Go program takes it: empty is the root, and the rest is what it means from the working directory."""
    return os.path.abspath(path) if path else "/"  # noqa: PTH100 - pathlib leaves '..' in


def _imex(settings: Settings) -> dict[str, Any]:
    if not settings.imex_channel_ids:
        return {}
    return {"channels": list(settings.imex_channel_ids), **({"required": True} if settings.imex_required else {})}


def _cdi(settings: Settings) -> dict[str, Any]:
    wide = {
        "annotationPrefix": (settings.cdi_annotation_prefix, "cdi.k8s.io/"),
        "hook": (settings.nvidia_cdi_hook_path, "/usr/bin/nvidia-ctk"),
        "featureFlags": (list(settings.cdi_feature_flags), []),
        "disabledHooks": (list(settings.cdi_disable_hooks), []),
    }
    return {key: value for key, (value, default) in wide.items() if value != default}


def _mps(settings: Settings, rules: list[dict[str, Any]]) -> dict[str, Any]:
    if settings.sharing[0] != "mps":
        return {}
    shared = [rule for rule in rules if rule.get("replicas", 1) > 1]
    chosen: dict[str, list[str]] = {}
    for rule in shared:
        chosen.setdefault(rule["resource"], []).extend(_chosen(rule))
    everything = {rule["resource"] for rule in shared if not _chosen(rule)}
    devices = {resource: words for resource, words in chosen.items() if resource not in everything}
    replicas = {rule["resource"]: rule["replicas"] for rule in shared}
    made = {"root": MPS_IN_CONTAINER, "replicas": replicas, "devices": devices}
    return {key: value for key, value in made.items() if value} if shared else {}


def _chosen(rule: Mapping[str, Any]) -> list[str]:
    """The GPUs of a rule, as a control daemon can be told them. None: all that there are."""
    match = rule.get("match", {})
    return [*match.get("index", ()), *match.get("id", ())] or ([match["model"]] if "model" in match else [])


def _mps_problems(settings: Settings, rules: list[dict[str, Any]]) -> Iterator[str]:
    """A resource has one control daemon, which has one limit for all clients; and a GPU has one daemon or none."""
    if settings.sharing[0] != "mps":
        return
    replicas: dict[str, int] = {}
    for number, rule in enumerate(rules):
        resource = rule["resource"]
        if rule.get("replicas", 1) == 1:
            continue
        if replicas.setdefault(resource, rule["replicas"]) != rule["replicas"]:
            yield (
                f"sharing.mps: {resource} has {replicas[resource]} and {rule['replicas']} replicas, and its one "
                "control daemon sets one limit. Make them equal, or give each line a rename"
            )
        others = {earlier["resource"] for earlier in rules[:number]} - {resource}
        if others and not _chosen(rule):
            yield (
                f"sharing.mps: {resource} is for all GPUs that are left by {', '.join(sorted(others))}, and a control "
                "daemon must be told which. List them in devices"
            )


# --- Rules ------------------------------------------------------------------------------------------------------------


def _rules(settings: Settings, notes: list[str], source: str, *, also_whole: bool) -> list[dict[str, Any]]:
    if also_whole and settings.sharing[1] is None:
        text = "--also-whole: nothing is shared, so GPUs are whole already. Leave it out, or add a sharing block"
        raise BadFile(PROGRAM, [text])
    if also_whole and settings.sharing[0] == "mps":
        text = "--also-whole: MPS keeps its GPUs for itself. Use time-slicing, or share only some of the devices"
        raise BadFile(PROGRAM, [text])
    problems: list[str] = []
    offers = list(list_offers(settings.file, settings.mig_strategy, problems, notes, lenient=settings.lenient))
    rules = [_rule(offer, settings, problems, also_whole=also_whole) for offer in offers]
    problems += _clashes(rules)
    if problems:
        raise BadFile(source, problems)
    return rules


def _rule(offer: Offer, settings: Settings, problems: list[str], *, also_whole: bool) -> dict[str, Any]:
    rule: dict[str, Any] = {"match": dict(offer.match)} if offer.match else {}
    rule["resource"] = offer.resource
    one = offer.shared
    if one is None:
        return rule | _placement(settings, offer)
    rule["replicas"] = one.replicas
    if _fails_over_one(settings):
        rule["perContainer"] = 1
    rule |= _placement(settings, offer)
    rule |= _mps_edits(settings, offer.resource)
    if also_whole and offer.resource == one.name:
        problems.append(f"{one.at}: --also-whole needs another name for what is shared: set renameByDefault")
    elif also_whole:
        rule["also"] = [{"resource": one.name}]
    return rule


def _clashes(rules: list[dict[str, Any]]) -> Iterator[str]:
    """GPUs that are shared and GPUs that are not cannot have one name where they are treated otherwise."""
    for rest in (rule for rule in rules if "replicas" not in rule):
        if any(
            rule["resource"] == rest["resource"]
            and "replicas" in rule
            and any(rule.get(key) != rest.get(key) for key in ("perContainer", "placement", "env"))
            for rule in rules
        ):
            yield (
                f"sharing: only some GPUs of {rest['resource']} are shared, and pods would ask for them by the name of "
                "the others. Set renameByDefault, or rename"
            )


def _fails_over_one(settings: Settings) -> bool:
    kind, sharing = settings.sharing
    if sharing is None:
        return False
    return kind == "mps" if sharing.fail_over_one is None else sharing.fail_over_one


def _placement(settings: Settings, offer: Offer) -> dict[str, Any]:
    """The policy is for what is shared and for MIG; whole GPUs are placed by their links."""
    chosen = "aligned"
    if offer.shared is not None or offer.partitions:
        chosen = _PLACEMENT[settings.shared_devices_allocation_policy]
    return {} if chosen == "aligned" else {"placement": chosen}


def _mps_edits(settings: Settings, resource: str) -> dict[str, Any]:
    if settings.sharing[0] != "mps":
        return {}
    root = os.path.normpath(settings.mps_root)
    inside, outside = f"{MPS_IN_CONTAINER}/{resource}/pipe", f"{root}/{resource}/pipe"
    return {
        "env": {"CUDA_MPS_PIPE_DIRECTORY": inside},
        "mounts": [
            {"host": outside, "container": inside, "readOnly": False},
            {"host": f"{root}/shm", "container": "/dev/shm", "readOnly": False},  # noqa: S108 - MPS's own
        ],
    }


# --- The rest ---------------------------------------------------------------------------------------------------------


def _kubelet(settings: Settings, places: Places) -> dict[str, Any]:
    kubelet: dict[str, Any] = {
        "directory": places.plugin_dir,
        "socketName": SOCKET_NAME,
        "podResources": places.pod_resources,
    }
    socket = settings.kubelet_socket and os.path.normpath(settings.kubelet_socket)
    if not socket:
        kubelet["registration"] = "none"
    elif socket not in {KUBELET_SOCKET, f"{places.plugin_dir}/kubelet.sock"}:
        kubelet["socket"] = socket
    return kubelet

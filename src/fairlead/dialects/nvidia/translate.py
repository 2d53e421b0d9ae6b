"""From what NVIDIA's plugin would run with to a configuration of ours. Pure: settings in, plain data out."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from fairlead.backends.nvidia.spec import Options
from fairlead.dialects.configfile import BadFile
from fairlead.dialects.invocation import Translation, finish, place
from fairlead.dialects.nvidia.flags import FLAGS, NAME, OWN
from fairlead.dialects.nvidia.selections import Selection, list_selections
from fairlead.dialects.nvidia.settings import Settings

SOCKET_NAME = "nvidia-{name}.sock"
MPS_IN_CONTAINER = "/mps"
REST = "30s"  # NVIDIA's plugin asks no GPU how it is; while all are well, ours need not do so every few seconds
_PLACEMENT = {"distributed": "aligned", "packed": "pack"}


def translate(settings: Settings, health: Mapping[str, Any], source: str) -> Translation:
    """What the table places, and what it cannot: rules, and values that depend on others.

    BadFile if the sharing block names what cannot be there.
    """
    notes: list[str] = []
    rules = _rules(settings, notes, source)
    if problems := list(_mps_problems(settings, rules)):
        raise BadFile(source, problems)
    config = place((*FLAGS, *OWN), settings.parsed.values)
    options = {**config.pop("backend", {}), "mps": _mps(settings, rules), "health": dict(health)}
    if not settings["imex-channel-ids"]:
        options.pop("imex", None)
    backend = {key: options[key] for key in Options.__struct_encode_fields__ if options.get(key, {}) != {}}
    config |= {
        "backends": [{"kind": "nvidia", **backend}],
        "rules": rules,
        "kubelet": _kubelet(config["kubelet"]),
        "scan": {**config.get("scan", {}), **({"required": True} if settings["fail-on-init-error"] else {})},
        "health": {"restInterval": REST},
        "instance": "nvidia",
    }
    return Translation(finish(config), tuple(notes))


def _kubelet(placed: Mapping[str, Any]) -> dict[str, Any]:
    kubelet = {**placed, "socketName": SOCKET_NAME}
    if kubelet.get("socket") == "":
        kubelet["registration"] = "none"
    if kubelet.get("socket") in {"", f"{kubelet['directory']}/kubelet.sock"}:
        del kubelet["socket"]
    return kubelet


# --- MPS --------------------------------------------------------------------------------------------------------------


def _mps(settings: Settings, rules: list[dict[str, Any]]) -> dict[str, Any]:
    if settings.sharing[0] != "mps":
        return {}
    shared = [rule for rule in rules if rule.get("replicas", 1) > 1]
    chosen: dict[str, list[str]] = {}
    for rule in shared:
        chosen.setdefault(rule["resource"], []).extend(_chosen(rule))
    everything = {rule["resource"] for rule in shared if not _chosen(rule)}
    devices = {resource: gpus for resource, gpus in chosen.items() if resource not in everything}
    replicas = {rule["resource"]: rule["replicas"] for rule in shared}
    made = {"root": MPS_IN_CONTAINER, "replicas": replicas, "devices": devices}
    return {key: value for key, value in made.items() if value} if shared else {}


def _chosen(rule: Mapping[str, Any]) -> list[str]:
    """The GPUs of a rule, as a control daemon can be given them. None: all that there are."""
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


def _rules(settings: Settings, notes: list[str], source: str) -> list[dict[str, Any]]:
    also_whole = bool(settings["also-whole"])
    if also_whole and settings.sharing[1] is None:
        text = "--also-whole: nothing is shared, so GPUs are whole already. Leave it out, or add a sharing block"
        raise BadFile(NAME, [text])
    if also_whole and settings.sharing[0] == "mps":
        text = "--also-whole: MPS keeps its GPUs for itself. Use time-slicing, or share only some of the devices"
        raise BadFile(NAME, [text])
    problems: list[str] = []
    selections = list(
        list_selections(settings.file, settings["mig-strategy"], problems, notes, lenient=settings.lenient)
    )
    rules = [_rule(selection, settings, problems, also_whole=also_whole) for selection in selections]
    problems += _clashes(rules)
    if problems:
        raise BadFile(source, problems)
    return rules


def _rule(selection: Selection, settings: Settings, problems: list[str], *, also_whole: bool) -> dict[str, Any]:
    rule: dict[str, Any] = {"match": dict(selection.selector)} if selection.selector else {}
    rule["resource"] = selection.resource
    one = selection.shared
    if one is None:
        return rule | _placement(settings, selection)
    rule["replicas"] = one.replicas
    if _fails_over_one(settings):
        rule["perContainer"] = 1
    rule |= _placement(settings, selection)
    rule |= _mps_edits(settings, selection.resource)
    if also_whole and selection.resource == one.name:
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


def _placement(settings: Settings, selection: Selection) -> dict[str, Any]:
    """The policy is for what is shared and for MIG; whole GPUs are placed by their links."""
    chosen = "aligned"
    if selection.shared is not None or selection.partitions:
        chosen = _PLACEMENT[settings["shared-devices-allocation-policy"]]
    return {} if chosen == "aligned" else {"placement": chosen}


def _mps_edits(settings: Settings, resource: str) -> dict[str, Any]:
    if settings.sharing[0] != "mps":
        return {}
    root = os.path.normpath(settings["mps-root"])
    inside, outside = f"{MPS_IN_CONTAINER}/{resource}/pipe", f"{root}/{resource}/pipe"
    return {
        "env": {"CUDA_MPS_PIPE_DIRECTORY": inside},
        "mounts": [
            {"host": outside, "container": inside, "readOnly": False},
            {"host": f"{root}/shm", "container": "/dev/shm", "readOnly": False},  # noqa: S108 - MPS's own
        ],
    }

"""The table of docs/guide/security.md: what every mode of the chart gets. Read from the objects that helm renders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tests.chart import helm
from tests.chart.helm import ROOT
from tests.chart.render import DIALECTS
from tests.chart.shapes import ASSIGN, MIXED, MPS, SLICED, Object, component, pod, workloads

PAGE = ROOT / "docs" / "guide" / "security.md"
BEGIN = "<!-- Made by `python -m tests.chart.render` of deploy/chart. -->\n\n"
END = "\n\n<!-- End of what is made. -->\n"
HEAD = ("mode", "container", "privileges", "user", "of the host", "at the API server")
NONE = "\N{EN DASH}"
# Those of the kubelet, which every device plugin has. The text above the table names them.
KUBELETS = {"/var/lib/kubelet/device-plugins": True, "/var/lib/kubelet/pod-resources": False}


def _own(backend: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    config = {"backends": [backend], "rules": [{"resource": "example.com/device"}], **more}
    return {"dialect": "fairlead", "fairlead": {"config": config}}


def _told(**keys: Any) -> dict[str, Any]:
    return _own({"kind": "sim"}, cluster=keys)


def _assigned(**keys: Any) -> dict[str, Any]:
    return _own({"kind": "sim"}, rules=[{"resource": "example.com/device", "assign": {**ASSIGN, **keys}}])


_ALONE: dict[str, Any] = {"devicePlugin": {"enabled": False}}
# As the page shows them -> the values of the release.
MODES: Mapping[str, Mapping[str, Any]] = {
    "`dialect=nvidia`": {},
    "… `migStrategy=mixed` or `single`": {"migStrategy": "mixed"},
    "… `deviceListStrategy=volume-mounts`": {"deviceListStrategy": "volume-mounts"},
    "… `deviceListStrategy=cdi-cri` or `cdi-annotations`": {"deviceListStrategy": "cdi-cri"},
    "… `compatWithCPUManager=true`": {"compatWithCPUManager": True},
    "… `nvidiaDriverRoot=/run/nvidia/driver`": {"nvidiaDriverRoot": "/run/nvidia/driver"},
    "… `config.map`, time-slicing": {"config": {"map": {"default": SLICED}}},
    "… `config.map`, MIG": {"config": {"map": {"default": MIXED}}},
    "… `config.map`, MPS": {"config": {"map": {"default": MPS}}},
    "… `config.name`": {"config": {"name": "mine"}},
    "… `gfd.enabled=true`": {"gfd": {"enabled": True}, **_ALONE},
    "… `gfd.enabled=true`, `gfd.toNode=true`": {"gfd": {"enabled": True, "toNode": True}, **_ALONE},
    "`dialect=amd`": {"dialect": "amd"},
    "… `amd.labeller.enabled=true`": {"dialect": "amd", "amd": {"labeller": {"enabled": True}}, **_ALONE},
    "`dialect=gke`": {"dialect": "gke"},
    "… `gke.healthMonitoring=false`": {"dialect": "gke", "gke": {"healthMonitoring": False}},
    "… `gke.publishDriverVersion=true`": {"dialect": "gke", "gke": {"publishDriverVersion": True}},
    "… `gke.mps=true`": {"dialect": "gke", "gke": {"mps": True}},
    **{
        f"`dialect={name}`": {"dialect": name, **DIALECTS[name]}
        for name in ("generic", "smarter", "gpushare", "volcano", "doslab")
    },
    "`dialect=fairlead`, backend `sim`": _own({"kind": "sim"}),
    "… backend `paths`": _own({"kind": "paths", "devices": [{"preset": "kvm"}]}),
    "… backend `nvidia`": _own({"kind": "nvidia"}),
    "… backend `nvidia`, `mig: mixed`": _own({"kind": "nvidia", "mig": "mixed"}),
    "… backend `nvidia`, `ways: [cdi-cri]`": _own({"kind": "nvidia", "ways": ["cdi-cri"]}),
    "… backend `amd`": _own({"kind": "amd"}),
    "… `fairlead.configs`": {
        **_own({"kind": "sim"}),
        "fairlead": {
            **_own({"kind": "sim"})["fairlead"],
            "configs": {"b": _own({"kind": "sim"})["fairlead"]["config"]},
        },
    },
    "… `amounts`": _own({"kind": "sim"}, amounts=[{"resource": "example.com/core", "perDevice": 100}]),
    "… `assign`": _assigned(),
    "… `assign.nodeEnv`": _assigned(nodeEnv={"label": "example.com/label", "env": {"a": "A"}}),
    "… `assign.nodeLock`": _assigned(nodeLock="example.com/lock"),
    "… `cluster.annotate`": _told(annotate={"example.com/a": "{model}"}),
    "… `cluster.condition`": _told(condition={"type": "Ill", "codes": ["*"]}),
    "… `cluster.devices`": _told(devices=True),
    "… `cluster.events`": _told(events={"reason": "Ill"}),
    "… `cluster.unhealthy`": _told(unhealthy="example.com/ill"),
    "… `kubelet.registration: watcher`": _own({"kind": "sim"}, kubelet={"registration": "watcher"}),
    "`devicePlugin.enableHostNetwork=true`": {"devicePlugin": {"enableHostNetwork": True}},
    "`hostPaths: [/opt/devices]`, with `generic` or `smarter`": {
        "dialect": "generic",
        **DIALECTS["generic"],
        "hostPaths": ["/opt/devices"],
    },
    "`extender.enabled=true`": {**_ALONE, "extender": {"enabled": True}},
    "… `extender.scheduler.enabled=true`": {
        **_ALONE,
        "extender": {"enabled": True, "scheduler": {"enabled": True}},
    },
}


def page(*, skip: bool = True) -> str:
    """The page with the table as it should be. `skip`: as for helm."""
    text = PAGE.read_text()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"{PAGE} has no place for the table")
    rows = [HEAD, ("---",) * len(HEAD), *_rows_of_all(skip=skip)]
    return before + begin + "\n".join(f"| {' | '.join(row)} |" for row in rows) + end + after


def _rows_of_all(*, skip: bool) -> Iterator[tuple[str, ...]]:
    for mode, values in MODES.items():
        made = helm.objects(values, skip=skip)
        shown = mode
        for workload in workloads(made):
            for row in _rows(workload, made):
                yield (shown, *row)
                shown = ""


def _rows(workload: Object, made: list[Object]) -> Iterator[tuple[str, ...]]:
    spec = pod(workload)
    shared = [name for key, name in (("hostPID", "process ids"), ("hostNetwork", "network")) if spec.get(key)]
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        user = str(spec["securityContext"]["runAsUser"])
        seen = [*shared, *_directories(container, spec)]
        asks = spec["automountServiceAccountToken"] or any(m["name"] == "token" for m in container["volumeMounts"])
        rights = _rights(workload, made) if asks else []
        name = container["name"]
        yield name, _privileges(container["securityContext"]), user, "; ".join(seen) or NONE, "; ".join(rights) or NONE


def _privileges(context: Object) -> str:
    assert context["readOnlyRootFilesystem"] is True
    if context.get("privileged"):
        return "privileged"
    assert context["capabilities"]["drop"] == ["ALL"]
    added = context["capabilities"].get("add", [])
    assert bool(added) is ("allowPrivilegeEscalation" not in context)
    return ", ".join(f"`{name}`" for name in added) or "none"


def _directories(container: Object, spec: Object) -> Iterator[str]:
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in spec["volumes"] if "hostPath" in volume}
    for mount in container["volumeMounts"]:
        path, writable = paths.get(mount["name"], ""), not mount.get("readOnly")
        if path and KUBELETS.get(path) != writable:
            yield f"`{path}`" + (", writable" if writable else "")


def _rights(workload: Object, made: list[Object]) -> list[str]:
    """What is bound to the account of a program: verbs by resource, with the namespace where there is one."""
    found: dict[tuple[str, str], set[str]] = {}
    roles = []
    for one in made:
        if one["kind"] not in {"ClusterRoleBinding", "RoleBinding"} or component(one) != component(workload):
            continue
        place = one["metadata"].get("namespace", "")
        where = "" if not place else " of the release's namespace" if place == helm.NAMESPACE else f" of `{place}`"
        role = one["roleRef"]
        rules = [
            r for o in made if (o["kind"], o["metadata"]["name"]) == (role["kind"], role["name"]) for r in o["rules"]
        ]
        if not rules:
            roles.append(f"`{role['name']}`{where}")
        for rule in rules:
            for resource in rule["resources"]:
                found.setdefault((resource, where), set()).update(rule["verbs"])
    return [f"{name}{where}: {', '.join(sorted(verbs))}" for (name, where), verbs in sorted(found.items())] + roles

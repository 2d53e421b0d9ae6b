"""`fairlead manifest` and the chart make the same pod of the same wish."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from fairlead.cli import DIALECTS
from fairlead.kit import documents
from fairlead.programs.manifest.objects import Order, make_objects
from fairlead.programs.manifest.orders import order_of_config, order_of_dialect
from tests.chart import helm
from tests.chart.shapes import CASES, MPS, daemon_set, env, granted, main_container, pod

SERIAL = "{name: serial, groups: [{paths: [{path: '/dev/ttyUSB*'}]}]}"
ARGS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "nvidia": ([], {}),
    "nvidia with CDI": (["--device-list-strategy=cdi-cri"], {"deviceListStrategy": "cdi-cri"}),
    "nvidia with MIG": (["--mig-strategy=mixed"], {"migStrategy": "mixed"}),
    "nvidia with nodes": (["--pass-device-specs"], {"compatWithCPUManager": True}),
    "nvidia elsewhere": (["--driver-root=/run/nvidia/driver"], {"nvidiaDriverRoot": "/run/nvidia/driver"}),
    "amd": ([], {}),
    "gke": (["-enable-health-monitoring"], {}),
    "gke, all": (
        ["-enable-health-monitoring", "-publish-driver-version"],
        {"gke": {"publishDriverVersion": True}},
    ),
    "generic": (["--device", SERIAL], {"args": ["--device", SERIAL]}),
    "smarter": ([], {}),
    "gpushare": ([], {}),
    "volcano": ([], {}),
    "doslab": ([], {}),
}


def same_pod(order: Order, values: dict[str, Any]) -> None:
    ours = [yaml.safe_load(documents.to_yaml(one)) for one in make_objects(order)]
    theirs = helm.objects(values)
    mine, other = pod(daemon_set(ours)), pod(daemon_set(theirs))
    for key in ("priorityClassName", "affinity", "tolerations", "automountServiceAccountToken", "securityContext"):
        assert mine.get(key) == other.get(key), key
    assert _by_name(mine["volumes"]) == _by_name(other["volumes"])
    one, two = main_container(daemon_set(ours)), main_container(daemon_set(theirs))
    for key in (
        "securityContext",
        "startupProbe",
        "livenessProbe",
        "readinessProbe",
        "ports",
        "terminationMessagePath",
    ):
        assert one.get(key) == two.get(key), key
    assert _by_name(one["volumeMounts"]) == _by_name(two["volumeMounts"])
    assert granted(ours, "plugin") == granted(theirs, "plugin")
    assert daemon_set(ours)["spec"]["updateStrategy"] == daemon_set(theirs)["spec"]["updateStrategy"]
    for name, value in env(one).items():
        assert env(two)[name] == value


def _by_name(entries: list[Any]) -> list[Any]:
    return sorted(entries, key=lambda entry: str(entry["name"]))


@pytest.mark.parametrize("case", ARGS)
def test_of_a_dialect(case: str):
    dialect = case.split(maxsplit=1)[0].rstrip(",")
    args, values = ARGS[case]
    same_pod(order_of_dialect(dialect, args), {"dialect": dialect, **values})


@pytest.mark.parametrize("case", ["fairlead", "cluster", "everything of the host"])
def test_of_a_configuration(case: str):
    config = CASES[case]["fairlead"]["config"]
    values = {key: value for key, value in CASES[case].items() if key != "hostPaths"}
    same_pod(order_of_config(documents.to_yaml(config), "fairlead.yaml"), values)


def test_every_dialect_can_be_printed():
    assert {case.split()[0].rstrip(",") for case in ARGS} == set(DIALECTS)


def test_a_shared_gpu_needs_the_directories_of_mps(tmp_path: Any):
    file = tmp_path / "mps.yaml"
    file.write_text(MPS)
    order = order_of_dialect("nvidia", [f"--config-file={file}", "--mps-root=/run/nvidia/mps"])
    made = helm.objects({"config": {"map": {"mps": MPS}}})
    mine = {one.name: (one.host, one.path) for one in order.needs.directories}
    volumes = {volume["name"]: volume.get("hostPath", {}).get("path") for volume in pod(daemon_set(made))["volumes"]}
    mounts = {mount["name"]: mount["mountPath"] for mount in main_container(daemon_set(made))["volumeMounts"]}
    assert mine == {name: (volumes[name], mounts[name]) for name in mine}
    assert "mps-root" in mine

"""Writes what is made of the chart: `python -m tests.chart.render`.

values.yaml is made of the schema, the files with keys, rights and the scheduler's configuration of the schema and the
code, and deploy/manifests and the table of docs/guide/security.md of the chart itself, with helm. Owns their shape;
tests hold the files to what is made here.
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from fairlead.cli.scheduler import configuration
from fairlead.config.schedulerspec import SchedulerSpec
from fairlead.policy.pods.contract import KNOWN
from tests.chart import helm, rights
from tests.chart.helm import CHART, ROOT

COMMAND = "python -m tests.chart.render"
MANIFESTS = ROOT / "deploy" / "manifests"
MONITORING = [ROOT / "deploy" / "monitoring" / name for name in ("rules.yaml", "dashboard.json")]
WIDTH = 110
# The values of the manifest of each dialect.
SERIAL = {"name": "serial", "groups": [{"paths": [{"path": "/dev/ttyUSB*"}]}, {"paths": [{"path": "/dev/ttyACM*"}]}]}
OWN = {
    "backends": [{"kind": "paths", "devices": [{"preset": "kvm"}, {"preset": "fuse"}]}],
    "rules": [
        {"match": {"id": "kvm"}, "resource": "example.com/kvm", "replicas": 100},
        {"resource": "example.com/fuse", "replicas": 100},
    ],
}
DIALECTS: Mapping[str, Mapping[str, Any]] = {
    "nvidia": {},
    "amd": {"amd": {"labeller": {"enabled": True}}},
    "gke": {},
    "generic": {"generic": {"devices": [SERIAL]}},
    "smarter": {"smarter": {"devices": [{"devicematch": "^video[0-9]*$", "nummaxdevices": 10}]}},
    "gpushare": {},
    "volcano": {},
    "doslab": {},
    "fairlead": {"fairlead": {"config": OWN}},
}


ALONE: Mapping[str, Any] = {"devicePlugin": {"enabled": False}}
# One manifest for each: those of the dialects, and what runs beside the scheduler.
RELEASES: Mapping[str, Mapping[str, Any]] = {
    **{name: {"dialect": name, **values} for name, values in DIALECTS.items()},
    "extender": {**ALONE, "extender": {"enabled": True}},
    "second-scheduler": {**ALONE, "extender": {"enabled": True, "replicas": 2, "scheduler": {"enabled": True}}},
}


def values_of(release: str) -> dict[str, Any]:
    return {"podSecurity": {"namespace": True}, **RELEASES[release]}


def schema() -> Any:
    return json.loads((CHART / "values.schema.json").read_text())


def defaults(node: Mapping[str, Any]) -> dict[str, Any]:
    """The default values, by the schema."""
    return {
        key: defaults(below) if "properties" in below else below.get("default")
        for key, below in node["properties"].items()
    }


def known_keys(node: Mapping[str, Any]) -> dict[str, Any]:
    """Every key that the schema allows; None where what is below is free."""
    return {key: known_keys(below) if "properties" in below else None for key, below in node["properties"].items()}


def values_file() -> str:
    head = [
        f"# Made by `{COMMAND}` of values.schema.json. NVIDIA's chart has the same keys; those of AMD's are below amd."
    ]
    return "\n".join([*head, *_values(schema(), 0)]) + "\n"


def _values(node: Mapping[str, Any], depth: int) -> Iterator[str]:
    pad = "  " * depth
    for key, below in node["properties"].items():
        if not depth:
            yield ""
        for line in textwrap.wrap(below["description"], WIDTH - len(pad)):
            yield f"{pad}# {line}"
        if "enum" in below and len(below["description"]) < WIDTH:
            yield f"{pad}# One of: {', '.join(str(one) for one in below['enum'] if one not in (None, ''))}."
        if "properties" in below:
            yield f"{pad}{key}:"
            yield from _values(below, depth + 1)
        else:
            yield textwrap.indent(_entry(key, below["default"]), pad)


def _entry(key: str, value: Any) -> str:
    """Maps and lists of maps over several lines, everything else on one."""
    deep = isinstance(value, dict) or (isinstance(value, list) and any(isinstance(one, dict) for one in value))
    if not deep or not value:
        return f"{key}: {json.dumps(value)}"
    return str(yaml.safe_dump({key: value}, sort_keys=False, width=WIDTH)).rstrip("\n")


def rights_file() -> str:
    return f"# Made by `{COMMAND}` of src/fairlead/cluster/rbac.py.\n" + yaml.safe_dump(
        rights.table(), sort_keys=False, default_flow_style=None
    )


def scheduler_file() -> str:
    """What `fairlead scheduler config` prints, for the chart to fill in, and which resources each system has."""
    made = yaml.safe_load(configuration(SchedulerSpec(), "http://127.0.0.1:1", "filled-in"))
    facts = {
        "systems": [{"system": str(one)} for one in KNOWN],
        "resources": {str(one): [each.resource for each in contracts] for one, contracts in KNOWN.items()},
        "configuration": made,
    }
    head = f"# Made by `{COMMAND}` of src/fairlead/cli/scheduler.py and src/fairlead/policy/packing.\n"
    return head + yaml.safe_dump(facts, sort_keys=False)


def keys_file() -> str:
    head = f"# Made by `{COMMAND}` of values.schema.json.\n"
    return head + yaml.safe_dump(known_keys(schema()), sort_keys=False)


def manifest(release: str, *, skip: bool = False) -> str:
    guide = "deploy" if release in DIALECTS else "scheduler"
    said = f"dialect={release}" if release in DIALECTS else json.dumps(RELEASES[release])
    head = (
        f"# Made by `{COMMAND}` of deploy/chart with {said}.\n"
        f"# Change the image to your own, then: kubectl apply -f {release}.yaml. Guide: docs/guide/{guide}.md\n"
    )
    if release == "second-scheduler":
        head += "# Change the version of kube-scheduler to that of your cluster.\n"
    # Objects of a release say that Helm manages them. These are managed by kubectl.
    text = helm.template(values_of(release), skip=skip)
    kept = [
        line
        for line in text.splitlines()
        if not line.lstrip().startswith(("helm.sh/chart:", "app.kubernetes.io/managed-by:", "# Source:"))
    ]
    return head + "\n".join(line for line in kept if line.strip()) + "\n"


def files() -> dict[Path, str]:
    """Those that need no helm. Written first: helm reads them. A chart has its files within, so these are copies."""
    copied = {CHART / "files" / path.name: path.read_text() for path in MONITORING if path.exists()}
    return {
        CHART / "values.yaml": values_file(),
        CHART / "files" / "rights.yaml": rights_file(),
        CHART / "files" / "keys.yaml": keys_file(),
        CHART / "files" / "scheduler.yaml": scheduler_file(),
        **copied,
    }


def main() -> int:
    for path, text in files().items():
        path.write_text(text)
    MANIFESTS.mkdir(exist_ok=True)
    for release in RELEASES:
        (MANIFESTS / f"{release}.yaml").write_text(manifest(release))
    from tests.chart import privileges  # here: it needs the releases of this module

    privileges.PAGE.write_text(privileges.page(skip=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())

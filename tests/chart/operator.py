"""What the CRDs of the Prometheus operator allow, of the fields that the chart uses. Any other field is a mistake.

The API server drops a field that a CRD does not have, without a word. kubernetes-validate does not know these kinds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.chart import extra

Schema = dict[str, Any]
API = "monitoring.coreos.com/v1"
TEXT: Schema = {"type": "string", "minLength": 1}
LABELS: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
# As Prometheus writes durations. The CRDs allow none at all too, which nobody means.
DURATION: Schema = {
    **TEXT,
    "pattern": r"^(0|([0-9]+y)?([0-9]+w)?([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?)$",
}


def _closed(fields: Mapping[str, Schema], *optional: str) -> Schema:
    """These fields and no others."""
    needed = [name for name in fields if name not in optional]
    return {"type": "object", "additionalProperties": False, "required": needed, "properties": dict(fields)}


def _list(item: Schema) -> Schema:
    return {"type": "array", "minItems": 1, "items": item}


def _kind(name: str, spec: Mapping[str, Schema]) -> Schema:
    meta = _closed({"name": TEXT, "namespace": TEXT, "labels": LABELS})
    return _closed({"apiVersion": {"const": API}, "kind": {"const": name}, "metadata": meta, "spec": _closed(spec)})


_SELECTOR = _closed({"matchLabels": {**LABELS, "minProperties": 1}})
# `port` is a name here, never a number.
_ENDPOINT = _closed({"port": TEXT, "path": TEXT, "interval": DURATION, "honorLabels": {"type": "boolean"}})
_ALERT = _closed({"alert": TEXT, "expr": TEXT, "for": DURATION, "labels": LABELS, "annotations": LABELS}, "for")
_RULE = {"oneOf": [_ALERT, _closed({"record": TEXT, "expr": TEXT})]}
SCHEMAS: Mapping[str, Schema] = {
    "PodMonitor": _kind("PodMonitor", {"selector": _SELECTOR, "podMetricsEndpoints": _list(_ENDPOINT)}),
    "ServiceMonitor": _kind("ServiceMonitor", {"selector": _SELECTOR, "endpoints": _list(_ENDPOINT)}),
    "PrometheusRule": _kind("PrometheusRule", {"groups": _list(_closed({"name": TEXT, "rules": _list(_RULE)}))}),
}


def mistakes(one: Mapping[str, Any]) -> list[str]:
    """Where an object of one of these kinds is wrong, and why."""
    found = extra.load("jsonschema").Draft202012Validator(SCHEMAS[one["kind"]]).iter_errors(one)
    told = [f"{error.json_path}: {error.message}" for error in found]
    names = [group["name"] for group in one["spec"].get("groups", ()) if "name" in group]
    # The name is the key of the list: the API server refuses a second one.
    return told + [f"$.spec.groups: {name} is there twice" for name in sorted(set(names)) if names.count(name) > 1]

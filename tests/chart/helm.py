"""Runs helm on our chart. Knows nothing of what is expected of the output."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.toolchain import build, build_or_skip

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "chart"
NAMESPACE = "fairlead"
# What the API server would say that it has.
APIS = ("monitoring.coreos.com/v1", "nfd.k8s-sigs.io/v1alpha1/NodeFeature")


class HelmError(Exception):
    """helm refused; the text is what it said."""


def run(
    *words: str, skip: bool = True, values: Mapping[str, Any] | None = None, env: Mapping[str, str] | None = None
) -> str:
    """What helm prints. `skip`: a test skips where there is no Go."""
    binary = build_or_skip("helm") if skip else build("helm")
    with tempfile.TemporaryDirectory() as home:
        words += () if values is None else ("--values", _write(Path(home) / "values.json", values))
        places = {f"HELM_{kind}_HOME": home for kind in ("CACHE", "CONFIG", "DATA")}
        whole = {**os.environ, **places, **(env or {})}
        done = subprocess.run(
            [str(binary), *words], capture_output=True, text=True, check=False, env=whole, timeout=300
        )
    if done.returncode != 0:
        raise HelmError(done.stderr.strip())
    return done.stdout


def _write(path: Path, values: Mapping[str, Any]) -> str:
    path.write_text(json.dumps(values))
    return str(path)


def template(
    values: Mapping[str, Any] | None = None,
    *more: str,
    release: str = "fairlead",
    namespace: str = NAMESPACE,
    skip: bool = True,
) -> str:
    apis = [f"--api-versions={name}" for name in APIS]
    words = ("template", release, str(CHART), "--namespace", namespace, "--kube-version", "1.36.0", *apis, *more)
    return _once(words, json.dumps(values or {}), skip)


@functools.cache
def _once(words: tuple[str, ...], values: str, skip: bool) -> str:
    """Many tests look at the same release."""
    return run(*words, values=json.loads(values), skip=skip)


def objects(values: Mapping[str, Any] | None = None, *more: str, **options: Any) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(template(values, *more, **options)) if one]


def notes(values: Mapping[str, Any] | None = None) -> str:
    """What helm says when it has installed a release. It asks no cluster."""
    words = ("install", "fairlead", str(CHART), "--namespace", NAMESPACE, "--dry-run=client", "--output", "json")
    return str(json.loads(_once(words, json.dumps(values or {}), skip=True))["info"]["notes"])

"""What the extra `chart` brings: schemas of Kubernetes, and what checks a document against a schema."""

from __future__ import annotations

import importlib
import os
from typing import Any

import pytest


def load(module: str) -> Any:
    """A module of the extra. A test skips where it is not installed; CI must have it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI must have the extra `chart`: {module} is not installed", pytrace=False)
        pytest.skip(f"{module} is not installed: pip install '.[chart]'")

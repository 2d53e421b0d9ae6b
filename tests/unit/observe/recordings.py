"""Records for tests."""

from __future__ import annotations

from typing import Any

from fairlead.observe import recording as rec

CONFIG = '{"backends": [{"kind": "sim", "name": "sim"}], "rules": [{"resource": "nvidia.com/gpu"}]}'


def state(**keys: Any) -> rec.State:
    given = {"version": rec.VERSION, "config": CONFIG, **keys}
    return rec.State(program="fairlead test", now_s=1.0, clock_s=1_700_000_000.0, source="test", **given)

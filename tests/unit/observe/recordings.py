"""Records for tests."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from fairlead.model.names import ResourceName
from fairlead.observe import recording as rec
from fairlead.observe.recordingfile import files_of, read

GPU = ResourceName("nvidia.com/gpu")
CONFIG = '{"backends": [{"kind": "sim", "name": "sim"}], "rules": [{"resource": "nvidia.com/gpu"}]}'


def state(**keys: Any) -> rec.State:
    given = {"version": rec.VERSION, "config": CONFIG, **keys}
    return rec.State(program="fairlead test", now_s=1.0, clock_s=1_700_000_000.0, source="test", **given)


def asked(number: int, size: int = 10) -> rec.Asked:
    return rec.Asked(number, float(number), GPU, "Allocate", os.urandom(size))


def read_all(path: Path) -> tuple[list[rec.Record], list[str]]:
    notes: list[str] = []
    return [record for each in files_of(path) for record in read(each, notes)], notes

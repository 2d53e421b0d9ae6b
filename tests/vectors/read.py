"""Reads the recordings: one compressed file of JSON lines per family, driver descriptions once each."""

from __future__ import annotations

import functools
import gzip
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from tests.vectors.types import Json, LabelVector, Vector

HERE = Path(__file__).parent
T = TypeVar("T")
Case = TypeVar("Case", Vector, LabelVector)


@functools.cache
def nvidia() -> Mapping[str, Vector]:
    """By the recording's own name."""
    return _read(HERE / "nvidia", Vector)


@functools.cache
def gfd() -> Mapping[str, LabelVector]:
    return _read(HERE / "gfd", LabelVector)


@functools.cache
def drivers() -> Mapping[str, Json]:
    """The driver descriptions that vectors name. `tests.nvml.from_recording` makes a driver of one."""
    return {line["key"]: line["driver"] for line in lines(HERE / "drivers.jsonl.gz", dict[str, Any])}


def _read(folder: Path, kind: type[Case]) -> dict[str, Case]:
    found = [vector for file in folder.glob("*.jsonl.gz") for vector in lines(file, kind)]
    return {vector.file: vector for vector in sorted(found, key=lambda vector: vector.file)}


def lines(file: Path, kind: type[T]) -> Iterator[T]:
    decoder = msgspec.json.Decoder(kind)
    with gzip.open(file) as lines:
        yield from map(decoder.decode, lines)

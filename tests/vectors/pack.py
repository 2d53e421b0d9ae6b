"""Packs folders of recordings, one JSON file per case, into what `read` reads.

    python -m tests.vectors.pack FOLDER_OF_NVIDIA FOLDER_OF_GFD

Nothing is dropped: a case is its own JSON with the driver taken out and the file's name put in.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def main(folders: list[str]) -> int:
    if len(folders) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    drivers: dict[str, Any] = {}
    for kind, folder in zip(("nvidia", "gfd"), folders, strict=True):
        families: dict[str, list[Any]] = defaultdict(list)
        for file in sorted(Path(folder).glob("*.json")):
            case = json.loads(file.read_text())
            family = case["name"].split("-")[0] if kind == "nvidia" else "labels"
            families[family].append({"file": file.stem, **_without_driver(case, drivers)})
        for family, cases in families.items():
            _write(HERE / kind / f"{family}.jsonl.gz", cases)
    _write(HERE / "drivers.jsonl.gz", [{"key": key, "driver": drivers[key]} for key in sorted(drivers)])
    return 0


def _without_driver(case: dict[str, Any], drivers: dict[str, Any]) -> dict[str, Any]:
    key = driver_key(case["driver"])
    drivers[key] = case["driver"]
    return case | {"driver": key}


def driver_key(driver: dict[str, Any]) -> str:
    """Its name, and what tells it from others of that name."""
    return f"{driver['name']}.{hashlib.sha256(json.dumps(driver).encode()).hexdigest()[:8]}"


def _write(file: Path, values: list[Any]) -> None:
    file.parent.mkdir(exist_ok=True)
    text = "".join(f"{json.dumps(value, ensure_ascii=False, separators=(',', ':'))}\n" for value in values)
    file.write_bytes(gzip.compress(text.encode(), 9, mtime=0))  # no time: the same input gives the same bytes


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Packs folders of recordings, one JSON file per case, into what `read` reads.

    python -m tests.vectors.pack nvidia FOLDER_OF_NVIDIA FOLDER_OF_GFD
    python -m tests.vectors.pack gke FOLDER_OF_GKE
    python -m tests.vectors.pack sharing FOLDER_OF_MINI FOLDER_OF_GPUSHARE FOLDER_OF_VOLCANO
    python -m tests.vectors.pack generic FOLDER

Of NVIDIA's nothing is dropped: a case is its own JSON with the driver taken out and the file's name put in. Of the
others, logs and times are left out, and folders of the recorder are called /recorded. Of GKE's, those of the plugin are
taken: partition_gpu is another program.
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


SHARING = ("mini", "gpushare", "volcano")


def main(words: list[str]) -> int:
    match words:
        case ["nvidia", one, two]:
            _pack_nvidia([one, two])
        case ["sharing", one, two, three]:
            _pack_sharing([one, two, three])
        case ["generic", folder]:
            cases = [_case(json.loads(file.read_text())) for file in sorted(Path(folder).glob("*.json"))]
            _write(HERE / "generic" / "cases.jsonl.gz", cases)
        case ["gke", folder]:
            files = [file for file in sorted(Path(folder).glob("*.json")) if file.name < "08"]
            _write(HERE / "gke" / "cases.jsonl.gz", [_case(json.loads(file.read_text())) for file in files])
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


def _pack_sharing(folders: list[str]) -> None:
    for peer, folder in zip(SHARING, folders, strict=True):
        files = [file for file in sorted(Path(folder).glob("*.json")) if "-inspect-" not in file.name]
        _write(HERE / peer / "cases.jsonl.gz", [_case(json.loads(file.read_text())) for file in files])


def _case(recorded: dict[str, Any]) -> dict[str, Any]:
    case: dict[str, Any] = json.loads(json.dumps(recorded).replace(f"/tmp/rec/{recorded['peer']}", "/recorded"))
    outputs = case["outputs"]
    for key in ("log", "cpu_seconds_used", "seconds_observed"):
        outputs.pop(key, None)
    of_resources = (one for resource in outputs.get("resources", {}).values() for one in resource.get("answers", ()))
    for answer in (*outputs.get("answers", ()), *of_resources):
        answer.pop("seconds", None)
    return case


def _pack_nvidia(folders: list[str]) -> None:
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

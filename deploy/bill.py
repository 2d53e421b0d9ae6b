"""The bill of materials of the image, as CycloneDX 1.6: each package, each library and the interpreter, with its files.

Made where the image is put together, from what the base itself knows: the metadata of installed Python packages and
Debian's records. A file of no known package is a component of its own, so that none is left out. Standard library only.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

FORMAT = "1.6"
PROPERTY = "fairlead:file"  # one for each file of a component that is not a Python package
OWN = "fairlead"
LIBPYTHON = re.compile(r"libpython[\d.]+\.so")
DPKG = Path("/var/lib/dpkg")
DOCS = Path("/usr/share/doc")

Component = dict[str, Any]


def make(packages: Path, taken: Sequence[Path], records: Path = DPKG) -> dict[str, Any]:
    """`packages`: a directory of installed packages. `taken`: files of the base that are in the image."""
    python = [python_package(one) for one in distributions(path=[str(packages)])]
    subject = [one for one in python if one["name"] == OWN]
    parts = [one for one in python if one["name"] != OWN]
    body = json.dumps([subject, parts, sorted(map(str, taken))], sort_keys=True).encode()
    return {
        "$schema": f"http://cyclonedx.org/schema/bom-{FORMAT}.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": FORMAT,
        "serialNumber": _uuid(hashlib.sha256(body).hexdigest()),
        "version": 1,
        "metadata": {"component": subject[0]} if subject else {},
        "components": [
            *sorted(parts, key=lambda one: str(one["name"]).lower()),
            interpreter(path for path in taken if LIBPYTHON.match(path.name)),
            *of_the_base([path for path in taken if not LIBPYTHON.match(path.name)], records),
        ],
    }


def python_package(one: Distribution) -> Component:
    name, told = one.metadata["Name"], one.metadata
    key = next((key for key in ("License-Expression", "License") if key in told), "")
    licence = told[key] if key else ""
    made: Component = {
        "type": "library",
        "bom-ref": f"pkg:pypi/{name.lower()}@{one.version}",
        "name": name,
        "version": one.version,
        "purl": f"pkg:pypi/{re.sub('[-_.]+', '-', name).lower()}@{one.version}",
    }
    if licence and "\n" not in licence:
        made["licenses"] = [{"expression": licence} if key != "License" else {"license": {"name": licence}}]
    return made


def interpreter(taken: Iterable[Path] = ()) -> Component:
    version = platform.python_version()
    return {
        "type": "platform",
        "bom-ref": f"pkg:generic/python@{version}",
        "name": platform.python_implementation(),
        "version": version,
        "purl": f"pkg:generic/python@{version}",
        "licenses": [{"license": {"id": "PSF-2.0"}}],
        "properties": [{"name": PROPERTY, "value": str(path)} for path in taken],
    }


def of_the_base(taken: Iterable[Path], records: Path = DPKG) -> list[Component]:
    """Debian's packages, as far as Debian's records name them, and the other files each for itself."""
    owners, versions = _owners(records), _versions(records)
    files: dict[str, list[Path]] = {}
    alone: list[Path] = []
    for path in taken:
        owner = next((owners[name] for name in _spellings(path) if name in owners), "")
        if owner in versions:
            files.setdefault(owner, []).append(path)
        else:
            alone.append(path)
    made = [_debian(name, versions[name], paths) for name, paths in sorted(files.items())]
    return [*made, *map(_file, sorted(alone))]


def copyrights(taken: Iterable[Path], records: Path = DPKG, docs: Path = DOCS) -> list[Path]:
    """The licence texts of the packages of these files."""
    owners = _owners(records)
    names = {owners[name].partition(":")[0] for path in taken for name in _spellings(path) if name in owners}
    return [file for name in sorted(names) if (file := docs / name / "copyright").is_file()]


def owned(taken: Iterable[Path], records: Path = DPKG) -> list[Path]:
    """The records themselves that name an owner of these files: what a base needs of them."""
    owners = _owners(records)
    names = {owners[name] for path in taken for name in _spellings(path) if name in owners}
    return [records / "info" / f"{name}.list" for name in sorted(names)]


def _debian(name: str, version: str, paths: Sequence[Path]) -> Component:
    plain, _, architecture = name.partition(":")
    where = f"?arch={architecture}" if architecture else ""
    purl = f"pkg:deb/debian/{plain}@{version.replace('+', '%2B').replace(':', '%3A')}{where}"
    return {
        "type": "library",
        "bom-ref": purl,
        "name": plain,
        "version": version,
        "purl": purl,
        "properties": [{"name": PROPERTY, "value": str(path)} for path in sorted(paths)],
    }


def _file(path: Path) -> Component:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return {
        "type": "file",
        "bom-ref": f"file:{digest}",
        "name": path.name,
        "hashes": [{"alg": "SHA-256", "content": digest}],
        "properties": [{"name": PROPERTY, "value": str(path)}],
    }


def _spellings(path: Path) -> list[str]:
    """A file as Debian may have recorded it: /lib is a link to /usr/lib, and libraries are links to versions."""
    names = [str(path), str(path.resolve())]
    return [*names, *(name.removeprefix("/usr") if name.startswith("/usr/") else f"/usr{name}" for name in names)]


def _owners(records: Path) -> Mapping[str, str]:
    lists = sorted((records / "info").glob("*.list")) if (records / "info").is_dir() else []
    return {line: file.name.removesuffix(".list") for file in lists for line in file.read_text().splitlines()}


def _versions(records: Path) -> Mapping[str, str]:
    """Installed versions, by the names of the lists of files: with the architecture where there may be two."""
    status = records / "status"
    found: dict[str, str] = {}
    for text in status.read_text().split("\n\n") if status.exists() else ():
        keys = dict(re.findall(r"^(Package|Version|Architecture): (\S+)$", text, re.MULTILINE))
        if {"Package", "Version"} <= keys.keys():
            found[keys["Package"]] = keys["Version"]
            found[f"{keys['Package']}:{keys.get('Architecture', '')}"] = keys["Version"]
    return found


def _uuid(digest: str) -> str:
    """A serial number that is the same for the same parts."""
    return f"urn:uuid:{digest[:8]}-{digest[8:12]}-5{digest[13:16]}-8{digest[17:20]}-{digest[20:32]}"

"""Machines whose sysfs is damaged: AMD GPUs, PCI functions, USB devices and RDMA adapters. A scan ends, with devices
that can be offered or with an error that says something; a look for labels likewise.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.amd import machines, tree
from tests.fuzz.mutate import damage_text
from tests.fuzz.targets import promise
from tests.unit.backends import sysfs
from tests.unit.backends.host import Host

from fairlead.backends import registry
from fairlead.backends.paths import PathsBackend
from fairlead.backends.paths.presets import options_of
from fairlead.backends.paths.scan import Scanner
from fairlead.engine.source import Source, Tempo
from fairlead.kit.clock import SystemClock
from fairlead.kit.hostroot import HostRoot
from fairlead.model.errors import BackendError
from fairlead.model.names import parse_slot_id
from fairlead.programs.labels.amd.catalogue import KINDS, make_labels
from fairlead.programs.labels.amd.machine import read_facts

# An error of Python's own in place of one that says what cannot be read.
DEFECT = re.compile(r"\b(Value|Key|Index|Type|Attribute|Assertion|Recursion|Overflow|Unicode\w*)Error\b")
WORDS = ("", "\n", "-1", "0", "0x", "ff", "99999999999999999999", "9" * 5000, "DEVNAME=../../etc/shadow\n", "\0" * 64)
PATHS: list[dict[str, Any]] = [
    {"pci": {"vendor": "8086", "device": "0b30"}},
    {"rdma": {"per": "port"}},
    {"sysfs": {"class": ["tty", "video4linux", "macvtap"]}},
    {"sysfs": {"class": "drm", "together": True}, "name": "{name}-{serial}-{node}"},
    {"bundle": {"name": "uart", "groups": [{"usb": [{"vendor": "0403", "product": "6001"}], "count": 2}]}},
    {"tree": {"matches": [{"match": "^ttyUSB[0-9]$", "count": 2}]}},
]


class SysfsTarget:
    block = 200

    async def start(self) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="fl", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))
        self._amd = tree.write(self._home / "amd", machines.vegas())
        self._host = Host(self._home / "paths")
        _populate(self._host)
        self._files = {root: sorted((root / "sys").rglob("*")) for root in (self._amd, self._host.root)}
        clock = SystemClock()
        scanner = Scanner(options_of({"devices": PATHS}).devices, self._host)
        health = {"checks": ["kfd", "nodes", "ras"]}
        self._backends = {
            self._amd: registry.open("amd", {"hostRoot": str(self._amd), "health": health}, clock),
            self._host.root: PathsBackend(scanner, clock, poll_s=60.0),
        }

    async def case(self, rng: random.Random) -> None:
        root = rng.choice([*self._backends])
        spoiled = [rng.choice(self._files[root]) for _ in range(rng.choice((1, 1, 2, 4)))]
        mends = [_spoil(rng, path, self._home / f"aside{turn}") for turn, path in enumerate(spoiled)]
        try:
            await self._look(root)
            if root == self._amd:
                _label(root)
        finally:
            for mend in reversed(mends):
                mend()

    async def _look(self, root: Path) -> None:
        facts: list[str] = []
        source = Source(
            "fuzz",
            self._backends[root],
            Tempo(),
            SystemClock(),
            lambda kind, **keys: facts.append(f"{kind} {keys.get('reason', '')}"),
            lambda: None,
        )
        await source.scan()
        ids = [device.id for device in source.findings.devices]
        promise(len(ids) == len(set(ids)), "two devices have one id")
        for name in ids:
            parse_slot_id(name)
        await source.pulse()
        for text in (source.problem, *source.findings.problems, *facts):
            promise(not DEFECT.search(text), f"a defect: {text}")
            promise(len(text) < 3000, f"a problem has {len(text)} characters")

    async def stop(self) -> None:
        for backend in self._backends.values():
            await backend.close()  # type: ignore[attr-defined]  # both have it
        shutil.rmtree(self._home)


def _label(root: Path) -> None:
    try:
        facts, _ = read_facts(HostRoot(str(root)))
    except BackendError as error:
        promise(str(error), "an error says nothing")
        return
    labels, _ = make_labels(facts, KINDS)
    for name, value in labels.items():
        promise(len(value) <= 63 and value.isprintable(), f"no value for a label: {name}={value!r}")


def _spoil(rng: random.Random, path: Path, aside: Path) -> Callable[[], None]:
    """Damages one file, link or directory; what brings it back."""
    if not os.path.lexists(path):
        return lambda: None  # another damage has taken it away
    text = path.read_text(errors="replace") if path.is_file() and not path.is_symlink() else ""
    path.rename(aside)
    match rng.randrange(8):
        case 0:
            pass
        case 1:
            os.mkfifo(path)
        case 2:
            path.symlink_to(rng.choice((path.name, ".", "..", "../" * 30 + "etc", "/dev/zero")))
        case 3:
            path.mkdir()
        case 4:
            path.write_bytes(rng.randbytes(rng.choice((1, 30, 70_000))))
        case 5:
            path.write_text(rng.choice(WORDS))
        case _:
            path.write_text(damage_text(rng, text or "0\n"), errors="replace")

    def mend() -> None:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        aside.rename(path)

    return mend


def _populate(host: Host) -> None:
    for number in (1, 2):
        where = sysfs.function(host, f"0000:0{number}:00.0", driver="dfl-pci")
        sysfs.node(host, where, "drm", f"dri/card{number}")
        sysfs.adapter(host, where, f"mlx5_{number}", number, {"1": "4: ACTIVE", "2": "1: DOWN"})
        tty = sysfs.usb(host, f"1-{number}", serial=f"A{number}")
        sysfs.node(host, f"{tty}/1-{number}:1.0/x", "tty", f"ttyUSB{number}")
        sysfs.node(host, f"/sys/devices/virtual/net/tap{number}", "macvtap", f"tap{number}")

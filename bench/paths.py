"""200 devices of the paths backend: how long a rescan takes, and what the daemon costs with them.

Owns the made-up /dev and /sys: serial converters on USB, each with a node, a link by id and its directories in sysfs.
What is wanted: SHEET. It takes root, to make device nodes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import stat
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import measure
from bench.contestants import Contestant
from bench.rows import OURS, Results, Row, Sheet, Target
from tests import toolchain
from tests.unit.backends import sysfs
from tests.unit.backends.host import Host

from fairlead.backends.paths.presets import options_of
from fairlead.backends.paths.scan import Scanner
from fairlead.kit.hostroot import HostRoot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bench.measure import Effort, OpenKubelet

DEVICES = 200
SCANS = 20
RESOURCE = "example.com/serial"
ENTRIES: dict[str, dict[str, Any]] = {
    "glob": {"paths": ["/dev/ttyUSB*"]},
    "links": {"paths": ["/dev/serial/by-id/*"]},
    "sysfs": {"preset": "serial"},
}
SHEET = Sheet(
    "paths",
    f"{DEVICES} devices of the paths backend",
    (),
    (
        Row("glob", "rescan, by glob", "ms"),
        Row("links", "rescan, by link", "ms"),
        Row("sysfs", "rescan, by class and serial number", "ms"),
        Row("check", "probe of all", "ms"),
        Row("start_registered", "start → registered", "ms", 0),
        Row("vanishes", "a node vanishes → list", "ms", 0),
        Row("pss", "PSS", "MB", 1),
        Row("rss", "RSS", "MB", 1),
        Row("idle_cpu", "idle CPU", "% of a core", 3),
    ),
    (
        Target("glob", None, at_most=20),
        Target("links", None, at_most=20),
        Target("sysfs", None, at_most=20),
        Target("idle_cpu", None, at_most=0.1),
    ),
)


def missing() -> str | None:
    if os.geteuid() != 0:
        return "device nodes are made by root only"
    try:
        toolchain.build("kubeletclient")  # the other client cannot wait for a change
    except toolchain.ToolchainMissingError as error:
        return str(error)
    return None


@contextlib.contextmanager
def machine() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="fl-", dir="/tmp") as home:
        host = Host(Path(home))
        for number in range(DEVICES):
            plug(host, number)
        yield host.root


def plug(host: Host, number: int) -> None:
    name, port = f"ttyUSB{number}", f"1-{number + 1}"
    where = sysfs.usb(host, port, serial=f"FT{number:04}")
    at = sysfs.node(host, f"{where}/{port}:1.0/{name}", "tty", name)
    major, minor = (int(part) for part in (host.root / at[1:] / "dev").read_text().split(":"))
    host.drop(f"/dev/{name}")
    os.mknod(host.root / f"dev/{name}", stat.S_IFCHR | 0o600, os.makedev(major, minor))
    host.link(f"/dev/serial/by-id/usb-FTDI_UART_FT{number:04}-if00-port0", f"../../{name}")


def contestant(root: Path) -> Contestant:
    def launch(directory: Path) -> Sequence[str | Path]:
        config = {
            "backends": [{"kind": "paths", "hostRoot": str(root), "devices": [ENTRIES["links"]]}],
            "rules": [{"resource": RESOURCE}],
            "kubelet": {"directory": str(directory), "podResources": ""},
            "status": {"socket": str(directory.parent / "s.sock")},
        }
        file = directory.parent / "config.json"
        file.write_text(json.dumps(config))
        return [Path(sys.executable).with_name("fairlead"), "run", "--config", file]

    return Contestant(OURS, RESOURCE, launch)


async def run(effort: Effort, open_kubelet: OpenKubelet, say: Callable[[str], None]) -> Results:
    results = Results(SHEET)
    with machine() as root:
        for number in range(effort.rounds):
            say(f"{DEVICES} path devices: {number + 1} of {effort.rounds}")
            results.add(OURS, scan_times(root))
            results.add(OURS, await daemon(root, effort, open_kubelet))
        async with measure.staged(contestant(root), open_kubelet) as stage:
            await asyncio.sleep(measure.SETTLE_S)
            for number in range(effort.idle_windows):
                say(f"idling for {effort.idle_s:.0f} s, {number + 1} of {effort.idle_windows}")
                results.add(OURS, {"idle_cpu": (await measure.idle_cpu([stage], effort.idle_s))[OURS]})
    return results


def scan_times(root: Path) -> dict[str, float]:
    """In process, on a warm cache, as every scan but the first is. Of a few the fastest counts."""
    numbers: dict[str, float] = {}
    for name, entry in ENTRIES.items():
        scanner = Scanner(options_of({"devices": [entry]}).devices, HostRoot(str(root)))
        seen = {found.device.id: found for found in scanner.scan().devices}
        if len(seen) < DEVICES:
            raise OSError(f"{len(seen)} devices were found, not {DEVICES}")
        numbers[name] = min(_time_ms(scanner.scan) for _ in range(SCANS))
        numbers["check"] = min(_time_ms(scanner.check, seen) for _ in range(SCANS))
    return numbers


async def daemon(root: Path, effort: Effort, open_kubelet: OpenKubelet) -> dict[str, float]:
    numbers = await measure.start_times(contestant(root), open_kubelet, effort)
    async with measure.staged(contestant(root), open_kubelet) as stage:
        told = asyncio.create_task(stage.ask("sickened", healthy=DEVICES - 1, timeout_s=30.0))
        await asyncio.sleep(measure.SETTLE_S)
        link = next((root / "dev/serial/by-id").iterdir())
        target = link.readlink()
        begin_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        link.unlink()
        try:
            numbers["vanishes"] = ((await told)["at_ns"] - begin_ns) / 1e6
        finally:
            link.symlink_to(target)
        numbers |= measure.footprint(stage)
    return numbers


def _time_ms(act: Callable[..., object], *given: object) -> float:
    begin = time.perf_counter()
    act(*given)
    return (time.perf_counter() - begin) * 1e3

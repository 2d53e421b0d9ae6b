"""What a process knows of itself, as Prometheus' own clients name it."""

from __future__ import annotations

import os

from msgspec import Struct

from fairlead.observe.exposition import Exposition

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Process(Struct, frozen=True):
    resident_bytes: int
    cpu_seconds: float
    open_files: int


def read_process() -> Process:
    times = os.times()
    with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 - pathlib would add nothing to a read of one line
        resident_pages = int(file.read(256).split()[1])
    return Process(
        resident_bytes=resident_pages * PAGE_BYTES,
        cpu_seconds=times.user + times.system,
        open_files=len(os.listdir("/proc/self/fd")),  # noqa: PTH208 - as above
    )


def render_process(page: Exposition, started_s: float, own: Process) -> None:
    page.gauge("process_start_time_seconds", "Start time of the process since unix epoch.", started_s)
    page.gauge("process_resident_memory_bytes", "Resident memory size.", own.resident_bytes)
    page.gauge("process_open_fds", "Number of open file descriptors.", own.open_files)
    page.family(
        "process_cpu_seconds_total", "counter", "Total user and system CPU time spent.", [((), own.cpu_seconds)]
    )

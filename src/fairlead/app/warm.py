"""What a daemon loads before it serves, and what it leaves for after its registration."""

from __future__ import annotations

import gc
import importlib

from fairlead.kubelet.service import chooser

# Modules that are used later, by a command's question or by an error. A module is a file: a process that has no
# descriptor left could not load one, and an error that cannot be told ends the daemon.
LATER = (
    "concurrent.futures.thread",  # asyncio loads it with the first call on a thread
    "difflib",
    "encodings.idna",  # names of hosts
    "fairlead.app.nothing",
    "fairlead.kubelet.checkpoint",
    "fairlead.wire.podresources",
    "fairlead.wire.pluginregistration",
    "linecache",
    "msgspec.inspect",  # errors of options
    "traceback",
)


WITH_CLUSTER = ("fairlead.cluster.kubeconfig", "fairlead.cluster.tls")


def load_ahead(*, cluster: bool = False) -> None:
    for name in (*LATER, *(WITH_CLUSTER if cluster else ())):
        importlib.import_module(name)
    chooser()


def warm_up() -> None:
    # What is there now stays: later collections need not walk it, inside an Allocate least of all. Once: what a reload
    # brings goes with the next one, and must not be kept from the collector.
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()
    gc.enable()

"""What a daemon leaves for after its registration. Loaded then."""

from __future__ import annotations

import gc

from fairlead.kubelet.service import chooser


def warm_up() -> None:
    chooser()
    # What is there now stays: later collections need not walk it, inside an Allocate least of all. Once: what a reload
    # brings goes with the next one, and must not be kept from the collector.
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()
    gc.enable()

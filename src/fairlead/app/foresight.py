"""What a daemon that starts now would offer on this node. For commands that only tell: reads, never writes."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from fairlead.app.stock import Ledger
from fairlead.app.unitbook import UnitBook
from fairlead.app.units import Units
from fairlead.config.load import Loaded
from fairlead.config.spec import Registration
from fairlead.kubelet.checkpoint import is_written, read_checkpoint
from fairlead.kubelet.podresources import Holdings, read_holdings
from fairlead.model.inventory import Inventory
from fairlead.policy.rules import Assignment, assign

ASK_S = 2.0


async def foresee(loaded: Loaded, inventory: Inventory) -> Assignment:
    """What a daemon that starts now would offer: a unit that pods of this node hold stays."""
    kubelet = loaded.config.kubelet
    watched = kubelet.registration is Registration.WATCHER
    book = UnitBook(Path(kubelet.watcher_directory if watched else kubelet.directory))
    book.read()
    unwritten = not book.units and not book.damaged
    if unwritten and not any(part.memory for rule in loaded.rules for part in (rule, *rule.also)):
        return assign(inventory, loaded.rules)
    found = await read_holdings(Path(kubelet.pod_resources), timeout_s=ASK_S) if kubelet.pod_resources else None
    held = found.by_resource if isinstance(found, Holdings) else None
    if unwritten and held is None:  # no daemon of ours was here, and perhaps there is no kubelet
        return assign(inventory, loaded.rules)
    written = read_checkpoint(Path(kubelet.directory))
    unreadable = written is None and is_written(Path(kubelet.directory))
    on_disk = None if unreadable else frozenset(written.held if written else ())
    listed = written.listed if written else {}
    ledger = Ledger(Units(book, lambda: on_disk, lambda name: listed.get(name, frozenset())))
    ledger.settle(inventory, loaded.rules, held, frozenset(), 0.0)
    return replace(ledger.assignment, problems=ledger.problems)

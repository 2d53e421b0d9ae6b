"""What a daemon that starts now would offer on this node, and to which pods it would be a loss. Reads, never writes."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from fairlead.config.load import Loaded
from fairlead.config.spec import Registration
from fairlead.engine.listing import Listing
from fairlead.engine.unitfile import UnitFiles
from fairlead.engine.units import Units
from fairlead.fronts.checkpoint import is_written, read_checkpoint
from fairlead.fronts.podresources import read_holdings
from fairlead.model.errors import FairleadError
from fairlead.model.holdings import Holdings, Unknown
from fairlead.model.inventory import Inventory
from fairlead.observe.control import ask
from fairlead.observe.plan import Holding, find_stranded
from fairlead.observe.status import Status, decode
from fairlead.policy.offering.rules import Offering, make_offering

ASK_S = 2.0


async def preview(loaded: Loaded, inventory: Inventory) -> Offering:
    """What a daemon that starts now would offer: a unit that pods of this node hold stays."""
    kubelet = loaded.config.kubelet
    watched = kubelet.registration is Registration.WATCHER
    files = UnitFiles(Path(kubelet.watcher_directory if watched else kubelet.directory))
    files.read()
    unwritten = not files.units and not files.damaged
    if unwritten and not any(part.terms.memory for rule in loaded.rules for part in (rule, *rule.also)):
        return make_offering(inventory, loaded.rules)
    found = await read_holdings(Path(kubelet.pod_resources), timeout_s=ASK_S) if kubelet.pod_resources else None
    held = found.by_resource if isinstance(found, Holdings) else None
    written = read_checkpoint(Path(kubelet.directory))
    if unwritten and held is None and written is None:  # no daemon of ours was here, and perhaps there is no kubelet
        return make_offering(inventory, loaded.rules)
    unreadable = written is None and is_written(Path(kubelet.directory))
    on_disk = None if unreadable else frozenset(written.held if written else ())
    listed = written.listed if written else {}
    listing = Listing(Units(files, lambda: on_disk, lambda name: listed.get(name, frozenset())))
    listing.settle(inventory, loaded.rules, held, 0.0)
    return replace(listing.offering, problems=listing.problems)


async def preview_holding(loaded: Loaded, offering: Offering) -> Holding:
    """Which containers hold what would no longer be offered, as far as the kubelet and a running daemon tell."""
    kubelet, socket = loaded.config.kubelet, loaded.config.status.socket
    found: Holdings | Unknown = Unknown("kubelet.podResources is empty")
    if kubelet.pod_resources:
        found = await read_holdings(Path(kubelet.pod_resources), timeout_s=ASK_S)
    if isinstance(found, Unknown):
        return Holding(not_looked_at=f"who holds what was not looked at: {found.reason}")
    served: frozenset[str] = frozenset()
    note = ""
    try:
        answer = decode(ask(Path(socket), {"ask": "status"}, timeout_s=ASK_S), Status)
        served = frozenset(resource.name for resource in answer.resources)
    except FairleadError as error:
        note = f"holders of resources that this configuration does not name were not looked at: {error}"
    return Holding(find_stranded(offering, found, served), note)

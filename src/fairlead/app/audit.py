"""The audit of a running daemon: when it looks, what the three views are taken from, and what follows.

`policy.audit` compares, `programs.audit` reads the host on a thread. Loaded only where an audit is asked for.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from fairlead.config.spec import ForeignUse
from fairlead.engine.grants import held_grant
from fairlead.fronts.holders import ask
from fairlead.fronts.podresources import DEADLINE_S
from fairlead.kit.hostroot import HostRoot
from fairlead.kit.owner import Owner
from fairlead.kit.waiting import sleep_unless
from fairlead.model.edits import Edits
from fairlead.model.errors import FairleadError, some
from fairlead.model.health import Cause, CauseKind, Condition, Health
from fairlead.model.holdings import Holdings, Unknown
from fairlead.model.names import DeviceId, ResourceName, SlotId
from fairlead.model.resource import Resource
from fairlead.policy.audit import (
    SETTLE_S,
    Difference,
    Entry,
    Granted,
    Kind,
    Known,
    NotLookedAt,
    Processes,
    Report,
    Views,
    compare,
    own_nodes,
    update,
)
from fairlead.programs.audit.gather import read_entries, read_uses

if TYPE_CHECKING:
    from fairlead.app.daemon import Daemon

CONFIRM_S = 2.0  # until a look at what was seen for the first time
WRITTEN_S = 1.0  # after Allocate, the kubelet has written its checkpoint
WALK_S = 10.0  # for a look at all processes
GRANTS_MAX = 1_000
FOREIGN_USE = "foreign-use"  # code of the cause
NOT_FOLLOWED = "audit.interval is 0: the daemon does not follow its grants"
SHOWN = 8  # differences in the status


class Auditor:
    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._thread = Owner("audit", daemon.clock)
        self._one = asyncio.Lock()  # one look at a time
        self._granted: deque[Granted] = deque(maxlen=GRANTS_MAX)
        self._news = asyncio.Event()  # a grant that the kubelet has not confirmed yet
        self._known = Known()
        self._follows = False
        self.report: Report | None = None  # of the last look

    def granted(self, resource: ResourceName, slots: Iterable[SlotId]) -> None:
        """Allocate gave these. An older grant of one of them is over."""
        if self._follows:
            mine = frozenset(slots)
            self._drop([old for old in self._granted if old.resource == resource and old.slots & mine])
            self._granted.append(Granted(resource, mine, self._daemon.clock.monotonic()))
            self._news.set()

    async def run(self) -> None:
        """Looks at intervals. In between, what was granted is compared with the kubelet's checkpoint, soon after it."""
        clock, interval_s = self._daemon.clock, float(self._daemon.loaded.config.audit.interval)
        self._follows = True
        next_s = clock.monotonic() + min(interval_s, SETTLE_S)
        while True:
            self._news.clear()
            if await sleep_unless(self._news, clock, max(0.0, next_s - clock.monotonic())):
                await clock.sleep(WRITTEN_S)
                self._confirm(await self._entries())
            if clock.monotonic() >= next_s:
                await self.look()
                # What was seen once is looked at again soon: then it is reported, or it was a pod that came or went.
                next_s = clock.monotonic() + (min(CONFIRM_S, interval_s) if self._known.seen else interval_s)

    def close(self) -> None:
        self._thread.close()

    def counts(self) -> Mapping[str, int] | None:
        """Reported differences by kind; None before the first look."""
        if self.report is None:
            return None
        found = Counter(one.kind for one in self.report.differences)
        return {kind.value: found[kind.value] for kind in Kind}

    async def look(self) -> Report:
        async with self._one:
            views = await self._views()
            found, lacking = compare(views)
            if not self._follows:
                found = tuple(one for one in found if one.kind != Kind.ORPHAN_GRANT)
                lacking = (*(one for one in lacking if one.kind != Kind.ORPHAN_GRANT), _not_followed())
            if self._daemon.loaded.config.audit.foreign_use is ForeignUse.IGNORE:
                found = tuple(one for one in found if one.kind != Kind.GHOST_USE)
            self.report = self._heed(found, lacking)
            return self.report

    def _heed(self, found: Sequence[Difference], lacking: Sequence[NotLookedAt]) -> Report:
        daemon = self._daemon
        change = update(self._known, found, lacking)
        self._known = change.known
        for one in change.reported:
            daemon.journal.record(
                "audit-difference", difference=one.kind, about=one.about, seen=one.seen, cure=one.cure
            )
        for one in change.cleared:
            daemon.journal.record("audit-cleared", difference=one.kind, about=one.about)
        reported = tuple(change.known.reported.values())
        shown = some([f"{one.seen}. {one.cure}" for one in reported], SHOWN)
        daemon.problems.note("audit", f"fairlead audit: {shown}" if reported else "")
        if daemon.loaded.config.audit.foreign_use is ForeignUse.HOLD:
            self._hold_back(reported)
        return Report(daemon.clock.now(), reported, tuple(lacking), len(change.known.seen))

    def _hold_back(self, reported: Iterable[Difference]) -> None:
        """Devices that foreign processes use are kept from new pods, as long as they are seen."""
        engine, now_s = self._daemon.engine, self._daemon.clock.monotonic()
        uses = {DeviceId(one.device): one.seen for one in reported if one.kind == Kind.GHOST_USE}
        if uses.keys() != engine.held_back.keys():
            engine.held_back = {
                device: engine.held_back.get(device)
                or Condition(Health.UNHEALTHY, Cause(FOREIGN_USE, CauseKind.TRANSIENT, seen), now_s)
                for device, seen in uses.items()
            }
            self._daemon.refresh_health()

    # --- The views ------------------------------------------------------------------------------------------------

    async def _views(self) -> Views:
        daemon = self._daemon
        resources = [endpoint.resource for endpoint in daemon.supervisor.endpoints.values()]
        holdings, kubelet = await ask(daemon.holders.pod_resources, DEADLINE_S)
        if isinstance(holdings, Holdings):
            daemon.holders.take(holdings, kubelet)
        entries = await self._entries()
        self._confirm(entries, holdings)
        return Views(
            now_s=daemon.clock.monotonic(),
            resources=resources,
            granted=tuple(self._granted),
            holdings=holdings,
            entries=entries,
            processes=await self._processes(resources),
            expected=() if isinstance(entries, Unknown) else tuple(self._expected(resources, entries)),
            elsewhere=daemon.cluster.actual_devices() if daemon.cluster is not None else {},
        )

    async def _entries(self) -> Sequence[Entry] | Unknown:
        try:
            return await self._thread.call(read_entries, self._daemon.directory, what="the kubelet's checkpoint")
        except FairleadError as error:
            return Unknown(str(error))

    async def _processes(self, resources: Sequence[Resource]) -> Processes | Unknown:
        nodes, allow = own_nodes(resources).keys(), self._daemon.loaded.config.audit.allow
        try:
            return await self._thread.call(
                read_uses, HostRoot(), nodes, allow, deadline_s=WALK_S, what="a look at the processes"
            )
        except FairleadError as error:
            return Unknown(str(error))

    def _expected(self, resources: Iterable[Resource], entries: Iterable[Entry]) -> Iterator[tuple[Entry, Edits]]:
        """Where a scheduler chose the devices, the answer depends on the pod, and is not made again."""
        plain = {each.name: each for each in resources if each.terms.assign is None}
        for entry in entries:
            resource = plain.get(entry.resource)
            if resource is not None and entry.slots and entry.slots <= resource.by_id.keys():
                try:
                    grant = held_grant(resource, sorted(entry.slots))
                    yield entry, self._daemon.supervisor.allocator.edits(resource, grant)
                except FairleadError:
                    continue  # the pod that restarts on them will hear it

    # --- Grants ---------------------------------------------------------------------------------------------------

    def _confirm(self, entries: Sequence[Entry] | Unknown, holdings: Holdings | Unknown | None = None) -> None:
        """Grants that the kubelet has written down, or names, are no longer of interest."""
        seen = set() if isinstance(entries, Unknown) else {(e.resource, slot) for e in entries for slot in e.slots}
        if isinstance(holdings, Holdings):
            seen |= holdings.by_slot.keys()
        self._drop([old for old in self._granted if all((old.resource, slot) in seen for slot in old.slots)])

    def _drop(self, over: Iterable[Granted]) -> None:
        for old in over:
            self._granted.remove(old)


def _not_followed() -> NotLookedAt:
    return NotLookedAt(Kind.ORPHAN_GRANT, NOT_FOLLOWED)

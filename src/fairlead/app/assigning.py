"""Assigning: gives each container the device that a scheduler wrote on its pod, and writes back that it has it.

Owns what was given to whom, the waiting, and the writing. Who is meant is decided in `policy.assign`; whether it was
right is judged in `policy.reconcile`, by what the kubelet says afterwards. Pods come from a watch, and what is written
is written later; the API server is asked, for a short time, only when the watch gives no answer or was silent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from math import inf
from typing import cast

from msgspec.structs import replace

from fairlead.app.book import Book, open_book
from fairlead.app.cluster import Cluster
from fairlead.app.marking import Marker
from fairlead.app.settling import Settler
from fairlead.cluster.errors import TooSlow
from fairlead.cluster.pods import PodCache
from fairlead.kubelet.podresources import Holdings, Unknown
from fairlead.kubelet.service import Record, grant_on
from fairlead.model.assign import Assign
from fairlead.model.edits import Grant
from fairlead.model.errors import AskRefused, ClusterAway, NotAssigned
from fairlead.model.names import DeviceId, ResourceName, SlotId
from fairlead.model.ports import Clock
from fairlead.model.resource import Resource
from fairlead.policy.assign import Match, Miss, check_room, choose_slots, is_under_way, match
from fairlead.policy.claims import share
from fairlead.policy.promise import Seeker
from fairlead.policy.reconcile import GRACE_S, reconcile

# After an admission the kubelet is asked who has what: soon, and again until it says so.
PAUSES_S = (0.1, 0.3, 1.0, 3.0, 10.0)
HOLDERS_DEADLINE_S = 2.0  # while the kubelet waits for us
SILENT_S = 5.0  # a pod is bound moments before its question: a watch that said nothing since may have missed it
DOUBTS_DEADLINE_S = 0.5  # the same, where the answer would be good without it
RIVALS_TOLD = 8  # in one line of the journal

ReadHolders = Callable[[float], Awaitable[Holdings | Unknown]]


class Assigner:
    """Run it as a task. `note`: a topic and its problem, empty when it is over."""

    def __init__(
        self, cluster: Cluster, clock: Clock, record: Record, note: Callable[[str, str], None], holders: ReadHolders
    ) -> None:
        self._node = cluster.node
        self._clock = clock
        self._record = record
        self._note = note
        self._read_holders = holders
        self._books: dict[ResourceName, Book] = {}
        self._keys: frozenset[str] = frozenset()
        self.pods = PodCache(cluster.client, cluster.node, keeps=lambda key: key in self._keys)
        self._watch = cluster.watch
        self._marker = Marker(cluster, self.pods, clock, record, note)
        self._settler = Settler(self._marker, record, note)
        self._stir = asyncio.Event()
        self._reread = asyncio.Event()
        self._labels = False  # whether labels of the node matter

    # --- Life -----------------------------------------------------------------------------------------------------

    def tell(self, resources: Iterable[Resource]) -> None:
        """The resources as they are offered now."""
        books = {}
        for resource in resources:
            if resource.assign is not None:
                books[resource.name] = open_book(resource, resource.assign, self._books.get(resource.name))
        self._books = books

    def read(self, assigns: Iterable[Assign]) -> None:
        """Which annotations are worth keeping. Said before the pods are read; and they are read again for new ones."""
        wanted = list(assigns)
        keys = frozenset(key for assign in wanted for key in assign.keys)
        labels = any(assign.node_env for assign in wanted)
        if keys <= self._keys and (self._labels or not labels):
            return
        self._keys |= keys
        self._labels |= labels
        self._reread.set()

    async def run(self) -> None:
        self._reread.set()  # also when it is run again
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._marker.run())
                group.create_task(self._verify())
                group.create_task(self._report())
                reading: asyncio.Task[None] | None = None
                watching: asyncio.Task[None] | None = None
                while True:
                    await self._reread.wait()
                    self._reread.clear()
                    if reading is not None:
                        reading.cancel()
                        await asyncio.wait({reading})
                        self.pods.forget()
                    reading = group.create_task(self.pods.run())
                    if self._labels and watching is None:
                        watching = group.create_task(self._watch.run())
        finally:
            self.pods.forget()  # nobody follows them any more, so nothing is decided by them

    async def _report(self) -> None:
        """Whether the cache can be relied on, for `status`."""
        async for now in self.pods.latest.follow():
            away = f"the pods of node {self._node!r} are not known: {now.problem}. Pods are refused until it answers"
            self._note("pods", away if now.problem else now.stalled)

    # --- The kubelet's questions ----------------------------------------------------------------------------------

    async def prefer(
        self, resource: Resource, available: Sequence[str], must: Sequence[str], size: int
    ) -> tuple[SlotId, ...]:
        """The slots that carry the decision. AskRefused if there is none: Allocate will say so to the pod."""
        book = self._of(resource, size)
        kept = [SlotId(slot) for slot in must]
        free = set(cast("Sequence[SlotId]", available))  # there may be 80,000
        async with book.lock:
            book.decided, book.free = None, free
            book.claims.free(free.difference(kept) if kept else free, init=True)
            found = await self._find(book, size, kept, first=True)
            want = found.want if found is not None else book.only(size)
            chosen = choose_slots(want, resource.slots_of, free, kept, strict=book.assign.strict)
            if found is not None and chosen:
                book.decided = (found.seeker.uid, want.container, frozenset(chosen))
            return chosen

    async def confirm(self, resource: Resource, ids: Sequence[str]) -> Grant:
        """The grant of one container, on the device that its pod was promised."""
        book = self._of(resource, len(ids))
        slots = frozenset(cast("Sequence[SlotId]", ids))
        async with book.lock:
            blunt = (book.free is None or slots.isdisjoint(book.free)) and not is_under_way(book.claims, list(slots))
            try:
                found = self._as_decided(book, slots)
                if found is None:
                    found = await self._find(book, len(ids), list(slots), first=False)
                await self._know_node(book, len(ids))
                want = found.want if found is not None else book.only(len(ids))
                pod = found.seeker if found is not None else None
                shares = share(want.amount, want.devices, want.parts)
                grant = grant_on(resource, ids, shares, book.words(want, pod), strict=book.assign.strict)
            except AskRefused as refusal:
                self._record("assignment-missing", resource=resource.name, amount=len(ids), reason=str(refusal))
                book.free = None
                raise
            book.decided = book.free = None
            if found is not None:
                self._claim(book, found, slots, blunt=blunt)
            if found is None or found.seeker.next(book.claims) is None:
                self._unlock(book)
            else:
                book.locked_for = found.seeker.uid
            return grant

    def forget(self, resource: Resource, ids: Sequence[str]) -> None:
        """A container was refused, whatever it had been granted: its pod's admission is over."""
        book = self._books.get(resource.name)
        if book is None:
            return
        for claim in {claim for slot in ids if (claim := book.claims.holder(SlotId(slot))) is not None}:
            book.claims.drop(claim.key)
        self._unlock(book)

    def env(self, resource: Resource) -> Mapping[str, str]:
        """What the node's labels add."""
        book = self._books.get(resource.name)
        node = self._watch.latest.value.node
        labels = node.metadata.labels if node is not None else {}
        parts = book.assign.node_env if book is not None else ()
        return {name: text for part in parts if labels.get(part.label) == part.value for name, text in part.env.items()}

    def told(self) -> dict[tuple[ResourceName, SlotId], DeviceId]:
        """Slots whose container was told another device than the one they are of."""
        return {(name, slot): device for name, book in self._books.items() for slot, device in book.told().items()}

    def _of(self, resource: Resource, amount: int) -> Book:
        book = self._books.get(resource.name)
        if book is None:  # new rules came between the question and its answer
            raise NotAssigned(resource.name, amount, self._node, "the rule has just lost its assign")
        return book

    def _claim(self, book: Book, found: Match, slots: frozenset[SlotId], *, blunt: bool) -> None:
        seeker, want = found.seeker, found.want
        book.give(found, slots, self._clock.monotonic(), blunt=blunt)
        lie_on = {slot.device for one in slots if (slot := book.resource.by_id.get(one)) is not None}
        self._record(
            "assigned",
            resource=book.resource.name,
            pod=str(seeker.pod),
            container=want.container,
            devices=want.devices,
            **({"slots_of": sorted(lie_on)} if lie_on != set(want.devices) else {}),
            **({"rivals": [str(rival.pod) for rival in found.rivals[:RIVALS_TOLD]]} if found.rivals else {}),
        )
        self._stir.set()

    # --- Whose question it is -------------------------------------------------------------------------------------

    async def _find(self, book: Book, amount: int, slots: Sequence[SlotId], *, first: bool) -> Match | None:
        """None: nobody asks, and this node has one device only, and may give it."""
        asked_s = self._clock.monotonic()
        end_s = book.end(amount, asked_s, first=first)
        going_s = inf if first else book.release(slots, self._clock.monotonic())
        verdict = self._look(book, amount, slots)
        read = False
        if self._is_doubtful(verdict) and not self.pods.is_away:
            read, verdict = True, await self._look_anew(book, amount, slots)
        if not book.adopted or (self._is_odd(verdict) and (book.claims.unsure or book.holds_ghosts())):
            # Some may have had their devices before us, and something given earlier may have come to nothing.
            await self._reconcile(book, HOLDERS_DEADLINE_S, grace_s=0.0)
            verdict = self._look(book, amount, slots)
            if not read and self._is_doubtful(verdict) and not self.pods.is_away:
                read, verdict = True, await self._look_anew(book, amount, slots)
        elif book.doubts(amount):
            # What was meant for one pod may be another's. Seen now, this one can still get what it was promised.
            await self._reconcile(book, DOUBTS_DEADLINE_S, grace_s=0.0)
            verdict = self._look(book, amount, slots)
        waits_s = book.waits_for_refused(verdict, amount, self._clock.monotonic())
        while waits_s or (self._may_change(verdict, asked_s, read=read) and not self._gives_only(book, amount)):
            seen, now_s = self.pods.latest.version, self._clock.monotonic()
            left_s = min(end_s - now_s, self.pods.patience.left(now_s))
            if left_s <= 0:
                break
            try:
                await self.pods.wait_for_news(seen, min(left_s, going_s, waits_s or inf))
            except TooSlow:
                if left_s <= going_s and not waits_s:
                    break
            going_s = inf if first else book.release(slots, self._clock.monotonic())
            verdict = self._look(book, amount, slots)
            if isinstance(verdict, Miss) and book.holds_ghosts():
                await self._reconcile(book, HOLDERS_DEADLINE_S, grace_s=0.0)
                verdict = self._look(book, amount, slots)
            waits_s = book.waits_for_refused(verdict, amount, self._clock.monotonic())
        if isinstance(verdict, Match):
            return verdict
        if self._gives_only(book, amount):
            return None
        now = self.pods.now
        if now.problem or not now.complete or now.read_s < asked_s:
            raise ClusterAway(book.resource.name, amount, self._node, now.problem)
        if not first:
            book.refuse(verdict.uid, amount, self._clock.monotonic())
        raise NotAssigned(
            book.resource.name, amount, self._node, f"{verdict.reason} (read from the API server just now)"
        )

    async def _look_anew(self, book: Book, amount: int, slots: Sequence[SlotId]) -> Match | Miss:
        await self.pods.check()
        return self._look(book, amount, slots)

    def _is_doubtful(self, verdict: Match | Miss) -> bool:
        """Whether the API server may know better than the cache."""
        return isinstance(verdict, Miss) or verdict.again or self.pods.silent_s > SILENT_S

    @staticmethod
    def _is_odd(verdict: Match | Miss) -> bool:
        return isinstance(verdict, Miss) or bool(verdict.moved)

    def _may_change(self, verdict: Match | Miss, asked_s: float, *, read: bool) -> bool:
        """Whether it is worth waiting: for a pod, for room, or for what the pod still lacks.

        The kubelet asks for pods that are bound. One that the API server does not list then does not come later.
        """
        if isinstance(verdict, Match) or not verdict.later:
            return False
        now = self.pods.now
        return bool(now.problem) or not (verdict.unseen and (read or now.read_s > asked_s))

    def _look(self, book: Book, amount: int, slots: Sequence[SlotId]) -> Match | Miss:
        now = self.pods.now
        if now.problem or not now.complete:
            return Miss(now.problem or "its pods are not read yet")
        seekers = self._seekers(book)
        return match(
            seekers,
            book.claims,
            amount,
            slots,
            book.spare_room(),
            refused=book.refused.keys(),
            keep=bool(book.assign.actual),
        )

    def _seekers(self, book: Book) -> tuple[Seeker, ...]:
        return self._settler.seekers(book, self.pods.now.pods)

    def _as_decided(self, book: Book, slots: frozenset[SlotId]) -> Match | None:
        """Whether the kubelet took what was preferred, and what it was preferred for still holds."""
        if book.decided is None or book.decided[2] != slots:
            return None
        uid, container, _ = book.decided
        found = match([s for s in self._seekers(book) if s.uid == uid], book.claims, len(slots), list(slots))
        if isinstance(found, Miss) or found.want.container != container:
            return None
        if check_room(found.seeker, found.want, book.claims, book.spare_room()) is not None:
            return None
        others = book.asking(self._seekers(book), len(slots))
        return replace(found, rivals=tuple(s for s in others if s.uid != uid and s.plan != found.seeker.plan))

    def _gives_only(self, book: Book, amount: int) -> bool:
        """Whether no other device can be meant: there is one, and the pod that asks was promised nothing."""
        if not book.assign.only_device or len(book.names) != 1 or not self.pods.now.complete or self.pods.now.problem:
            return False
        asking = next(iter(book.asking(self._seekers(book), amount)), None)
        return asking is None or (asking.fault is not None and asking.fault.absent)

    async def _know_node(self, book: Book, amount: int) -> None:
        """Labels that decide about a container's environment must be known before it begins."""
        if not book.assign.node_env or self._watch.latest.value.node is not None:
            return
        await self._watch.check()
        patience, began_s = self.pods.patience, self._clock.monotonic()
        try:
            async with asyncio.timeout(min(book.assign.wait_s, patience.left(began_s))):
                async for now in self._watch.latest.follow():
                    if now.node is not None:
                        return
        except TimeoutError:
            problem = self._watch.latest.value.problem or "its labels are not read yet"
            raise ClusterAway(book.resource.name, amount, self._node, problem) from None
        finally:
            now_s = self._clock.monotonic()
            patience.spend(now_s, now_s - began_s)

    def _unlock(self, book: Book) -> None:
        book.locked_for = ""
        if book.assign.node_lock:
            self._marker.unlock(book.assign.node_lock)

    # --- Whether it was right -------------------------------------------------------------------------------------

    async def _verify(self) -> None:
        """After each admission, until the kubelet has shown who has what."""
        step = 0
        while True:
            if step == len(PAUSES_S):
                await self._stir.wait()
                step = 0
            self._stir.clear()
            await self._clock.sleep(PAUSES_S[step])
            settled = bool(self._books)
            for book in list(self._books.values()):
                if book.lock.locked() or not self.pods.now.complete:
                    settled = False  # a question waits for its pod; the other resources do not wait for it
                    continue
                await self.verify(book)
                settled = settled and not book.unsettled
            after = len(PAUSES_S) if settled else min(step + 1, len(PAUSES_S) - 1)
            step = 0 if self._stir.is_set() else after

    async def verify(self, book: Book, grace_s: float = GRACE_S) -> None:
        known = book.strangers
        async with book.lock:
            await self._reconcile(book, HOLDERS_DEADLINE_S, grace_s=grace_s)
        if book.strangers - known:  # the kubelet has admitted pods that the watch has not told of
            await self.pods.check()
            async with book.lock:
                await self._reconcile(book, HOLDERS_DEADLINE_S, grace_s=grace_s)

    async def _reconcile(self, book: Book, timeout_s: float, *, grace_s: float) -> None:
        holdings = await self._read_holders(timeout_s)
        if isinstance(holdings, Unknown):
            self._note("assign", f"whether pods have the right devices is not known: {holdings.reason}")
            return
        self._note("assign", "")
        if not self.pods.now.complete:
            return
        book.adopted = True
        held = holdings.by_holder(book.resource.name)
        known = book.resource.by_id
        devices = {slot: known[slot].device for slots in held.values() for slot in slots if slot in known}
        now_s = self._clock.monotonic()
        keep = bool(book.assign.actual)
        outcome = reconcile(book.claims, self._seekers(book), held, devices, book.room, now_s, grace_s, keep=keep)
        book.claims = outcome.claims
        if self._settler.settle(book, self._books.values(), outcome, self.pods.now.pods):
            self._stir.set()  # it is marked when all is as it says
        if book.locked_for and not any(seeker.uid == book.locked_for for seeker in book.seekers):
            self._unlock(book)  # its pod has failed on something else, between two containers

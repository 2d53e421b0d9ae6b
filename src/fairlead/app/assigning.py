"""Assigning: gives each container the device that a scheduler wrote on its pod, and writes back that it has it.

Owns what was given to whom, the waiting, and the writing. Who is meant is decided in `policy.assign`; whether it was
right is judged in `policy.reconcile`, by what the kubelet says afterwards. No call of the kubelet waits for the API
server: pods come from a watch, and what is written is written later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from msgspec import Struct, field

from fairlead.app.cluster import Cluster
from fairlead.app.marking import Marker
from fairlead.cluster.errors import TooSlow
from fairlead.cluster.nodes import NodeWatch
from fairlead.cluster.pods import PodCache, PodsNow
from fairlead.kubelet.podresources import Holdings, Unknown
from fairlead.kubelet.service import Record, grant_on
from fairlead.model.assign import Assign
from fairlead.model.edits import Grant
from fairlead.model.errors import AskRefused, ClusterAway, NotAssigned
from fairlead.model.names import DeviceId, ResourceName, SlotId
from fairlead.model.ports import Clock
from fairlead.model.resource import Resource
from fairlead.policy.assign import Match, Miss, Seeker, Want, check_room, choose_slots, match, read_pod
from fairlead.policy.claims import Claim, Claims
from fairlead.policy.memory import MIB
from fairlead.policy.reconcile import GRACE_S, Outcome, reconcile

# After an admission the kubelet is asked who has what: soon, and again until it says so.
PAUSES_S = (0.1, 0.3, 1.0, 3.0, 10.0)
HOLDERS_DEADLINE_S = 2.0  # while the kubelet waits for us
FORGET_S = 30.0  # a question whose Allocate never came

ReadHolders = Callable[[float], Awaitable[Holdings | Unknown]]


class _Book(Struct):
    """What is known of one resource."""

    resource: Resource
    assign: Assign
    names: Mapping[str, DeviceId]
    room: Mapping[DeviceId, int]
    claims: Claims = field(default_factory=Claims)
    seekers: tuple[Seeker, ...] = ()
    seen: PodsNow | None = None  # the pods that the seekers were read from
    read: dict[str, tuple[object, str | None, Seeker | None]] = field(default_factory=dict)
    promised: dict[str, str] = field(default_factory=dict)  # by uid: what a pod's annotation is going to say
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    decided: tuple[str, str, frozenset[SlotId]] | None = None  # uid, container, slots: what was answered last
    ends: dict[int, float] = field(default_factory=dict)  # by amount: how long its question may still wait
    wrong: Mapping[str, str] = {}
    adopted: bool = False  # who had what before us is known


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
        self._books: dict[ResourceName, _Book] = {}
        self._keys: frozenset[str] = frozenset()
        self.pods = PodCache(cluster.client, cluster.node, keeps=lambda key: key in self._keys)
        self._watch = NodeWatch(cluster.client, cluster.node)
        self._marker = Marker(cluster, self.pods, clock, record, note)
        self._stir = asyncio.Event()
        self._reread = asyncio.Event()
        self._labels = False  # whether labels of the node matter

    # --- Life -----------------------------------------------------------------------------------------------------

    def tell(self, resources: Iterable[Resource]) -> None:
        """The resources as they are offered now."""
        books = {}
        for resource in resources:
            if resource.assign is not None:
                books[resource.name] = self._book(resource, resource.assign)
        self._books = books

    def read(self, assigns: Iterable[Assign]) -> None:
        """Which annotations are worth keeping. Said before the pods are read; and they are read again for new ones."""
        wanted = list(assigns)
        keys = frozenset(key for assign in wanted for key in assign.keys)
        self._labels = self._labels or any(assign.node_env for assign in wanted)
        if keys <= self._keys:
            return
        self._keys |= keys
        self._reread.set()

    def _book(self, resource: Resource, assign: Assign) -> _Book:
        devices = [found for d in resource.slots_of if (found := resource.inventory.by_id.get(d)) is not None]
        names = {(device.id if assign.by_id else device.index): device.id for device in devices}
        room = {d: sum(slot.retired_s is None for slot in slots) for d, slots in resource.slots_of.items()}
        book = self._books.get(resource.name)
        if book is None:
            return _Book(resource, assign, names, room)
        if (names, assign) != (book.names, book.assign):
            book.read, book.seen = {}, None
        book.resource, book.assign, book.names, book.room = resource, assign, names, room
        return book

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._marker.run())
            group.create_task(self._verify())
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

    # --- The kubelet's questions ----------------------------------------------------------------------------------

    async def prefer(
        self, resource: Resource, available: Sequence[str], must: Sequence[str], size: int
    ) -> tuple[SlotId, ...]:
        """The slots that carry the decision. AskRefused if there is none: Allocate will say so to the pod."""
        book = self._books[resource.name]
        kept = [SlotId(slot) for slot in must]
        async with book.lock:
            book.decided = None
            free = {SlotId(slot) for slot in available}
            book.claims.free(free.difference(kept))
            found = await self._find(book, size, kept, first=True)
            want = found.want if found is not None else self._only(book, size)
            chosen = choose_slots(want, resource.slots_of, free, kept, strict=book.assign.strict)
            if found is not None and chosen:
                book.decided = (found.seeker.uid, want.container, frozenset(chosen))
            return chosen

    async def confirm(self, resource: Resource, ids: Sequence[str]) -> Grant:
        """The grant of one container, on the device that its pod was promised."""
        book = self._books[resource.name]
        assign = book.assign
        slots = frozenset(SlotId(slot) for slot in ids)
        async with book.lock:
            book.claims.free(slots)
            try:
                found = self._as_decided(book, slots) or await self._find(book, len(ids), list(slots), first=False)
                want = found.want if found is not None else self._only(book, len(ids))
                pod = found.seeker if found is not None else None
                grant = grant_on(resource, ids, want.devices, self._words(book, want, pod), strict=assign.strict)
            except AskRefused as refusal:
                self._record("assignment-missing", resource=resource.name, amount=len(ids), reason=str(refusal))
                self._unlock(book)
                raise
            book.decided = None
            if pod is not None:
                claim = Claim(pod.uid, want.container, slots, want.devices, self._clock.monotonic(), init=want.init)
                book.claims.add(claim)
                rivals = [str(rival.pod) for rival in found.rivals] if found is not None else []
                self._record(
                    "assigned",
                    resource=resource.name,
                    pod=str(pod.pod),
                    container=want.container,
                    devices=want.devices,
                    **({"rivals": rivals} if rivals else {}),
                )
                self._stir.set()
            if pod is None or pod.next(book.claims) is None:
                self._unlock(book)
            return grant

    def forget(self, resource: Resource, ids: Sequence[str]) -> None:
        """The container was refused after all."""
        book = self._books[resource.name]
        claim = next((claim for slot in ids if (claim := book.claims.holder(SlotId(slot)))), None)
        if claim is not None:
            book.claims.drop(claim.key)

    def env(self, resource: Resource) -> Mapping[str, str]:
        """What the node's labels add."""
        book = self._books.get(resource.name)
        node = self._watch.latest.value.node
        labels = node.metadata.labels if node is not None else {}
        parts = book.assign.node_env if book is not None else ()
        return {name: text for part in parts if labels.get(part.label) == part.value for name, text in part.env.items()}

    # --- Whose question it is -------------------------------------------------------------------------------------

    async def _find(self, book: _Book, amount: int, slots: Sequence[SlotId], *, first: bool) -> Match | None:
        """None: nobody asks, and this node has one device only, and may give it."""
        end_s = self._end(book, amount, first=first)
        verdict = self._look(book, amount, slots)
        if not book.adopted or (isinstance(verdict, Miss) and book.claims.unsure):
            # Some may have had their devices before us, and something given earlier may have come to nothing.
            await self._reconcile(book, HOLDERS_DEADLINE_S, grace_s=0.0)
            verdict = self._look(book, amount, slots)
        left_s = end_s - self._clock.monotonic()
        if isinstance(verdict, Miss) and verdict.later and left_s > 0 and not self._gives_only(book, amount):

            def look(_now: PodsNow) -> Match | None:
                nonlocal verdict
                verdict = self._look(book, amount, slots)
                return verdict if isinstance(verdict, Match) else None

            try:
                return await self.pods.wait_for(look, left_s)
            except TooSlow:
                pass
        if isinstance(verdict, Match):
            return verdict
        if self._gives_only(book, amount):
            return None
        now = self.pods.now
        if now.problem or not now.complete:
            raise ClusterAway(book.resource.name, amount, self._node, now.problem)
        raise NotAssigned(book.resource.name, amount, self._node, verdict.reason)

    def _end(self, book: _Book, amount: int, *, first: bool) -> float:
        """A question and the Allocate that follows it wait together no longer than once."""
        now_s = self._clock.monotonic()
        book.ends = {key: end_s for key, end_s in book.ends.items() if now_s - end_s < FORGET_S}
        if first:
            book.ends[amount] = now_s + book.assign.wait_s
            return book.ends[amount]
        return book.ends.pop(amount, now_s + book.assign.wait_s)

    def _look(self, book: _Book, amount: int, slots: Sequence[SlotId]) -> Match | Miss:
        now = self.pods.now
        if now.problem or not now.complete:
            return Miss(now.problem or "its pods are not read yet")
        found = match(self._seekers(book), book.claims, amount, slots)
        if isinstance(found, Match):
            full = check_room(found.want, book.claims, book.room)
            return Miss(f"{found.seeker.pod}: {full.reason}") if full is not None else found
        return found

    def _seekers(self, book: _Book) -> tuple[Seeker, ...]:
        """The pods that ask for the resource, in their order. Each is read once per change of it."""
        now = self.pods.now
        if book.seen is not None and book.seen.pods is now.pods:
            return book.seekers
        read = {}
        for uid, pod in now.pods.items():
            promised = book.promised.get(uid)
            if promised is not None and pod.annotations.get(book.assign.device) == promised:
                del book.promised[uid]
                promised = None
            known = book.read.get(uid)
            if known is None or known[0] is not pod or known[1] != promised:
                known = (pod, promised, read_pod(pod, book.resource.name, book.assign, book.names, promised))
            read[uid] = known
        book.read = read
        for claim in [claim for claim in book.claims if claim.uid not in read]:
            book.claims.drop(claim.key)
        book.seekers = tuple(sorted((s for _, _, s in read.values() if s is not None), key=lambda s: s.order))
        book.seen = now
        return book.seekers

    def _as_decided(self, book: _Book, slots: frozenset[SlotId]) -> Match | None:
        """Whether the kubelet took what was preferred, and what it was preferred for still holds."""
        if book.decided is None or book.decided[2] != slots:
            return None
        uid, container, _ = book.decided
        seeker = next((seeker for seeker in self._seekers(book) if seeker.uid == uid), None)
        want = seeker.next(book.claims) if seeker is not None else None
        if seeker is None or want is None or want.container != container or not seeker.open or seeker.fault is not None:
            return None
        return Match(seeker, want) if check_room(want, book.claims, book.room) is None else None

    def _gives_only(self, book: _Book, amount: int) -> bool:
        if not book.assign.only_device or len(book.names) != 1 or not self.pods.now.complete or self.pods.now.problem:
            return False
        return not any((want := s.next(book.claims)) and want.amount == amount and s.open for s in self._seekers(book))

    @staticmethod
    def _only(book: _Book, amount: int) -> Want:
        return Want("", amount, tuple(book.names.values()))

    def _words(self, book: _Book, want: Want, seeker: Seeker | None) -> dict[str, str]:
        resource, assign = book.resource, book.assign
        units = [book.room.get(device, 0) for device in want.devices]
        words = {
            "podName": "",
            "podNamespace": "",
            "podUnits": str(want.amount),
            "assigned": ",".join(name for name, device in book.names.items() if device in want.devices),
            "deviceUnits": _of_one(units),
            "deviceMib": _of_one(
                [device.memory_bytes // MIB for d in want.devices if (device := resource.inventory.by_id.get(d))]
            ),
            "nodeUnits": str(sum(book.room.values())),
        }
        if seeker is not None:
            pod = seeker.pod
            words |= {"podName": pod.name, "podNamespace": pod.namespace, "podUnits": str(seeker.units)}
            said = book.promised.get(pod.uid) or pod.annotations.get(assign.device)
            words |= {"assigned": said} if said else {}
            words |= {f"annotation:{key}": pod.annotations.get(key, "") for key in assign.needs}
        return words

    def _unlock(self, book: _Book) -> None:
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
            if self.pods.now.complete:
                for book in list(self._books.values()):
                    async with book.lock:
                        await self._reconcile(book, HOLDERS_DEADLINE_S, grace_s=GRACE_S)
            books = self._books.values()
            settled = books and not any(book.claims.unsure or book.wrong or not book.adopted for book in books)
            after = len(PAUSES_S) if settled else min(step + 1, len(PAUSES_S) - 1)
            step = 0 if self._stir.is_set() else after

    async def _reconcile(self, book: _Book, timeout_s: float, *, grace_s: float) -> None:
        holdings = await self._read_holders(timeout_s)
        if isinstance(holdings, Unknown):
            self._note("assign", f"whether pods have the right devices is not known: {holdings.reason}")
            return
        self._note("assign", "")
        book.adopted = True
        held = holdings.by_holder(book.resource.name)
        devices = {slot: owner for owner, slots in book.resource.slots_of.items() for slot in [s.id for s in slots]}
        now_s = self._clock.monotonic()
        outcome = reconcile(book.claims, self._seekers(book), held, devices, book.room, now_s, grace_s)
        book.claims = outcome.claims
        self._act(book, outcome)

    def _act(self, book: _Book, outcome: Outcome) -> None:
        name, assign = book.resource.name, book.assign
        words = {device: word for word, device in book.names.items()}
        for claim in outcome.lost:
            self._record("assignment-lost", resource=name, pod=claim.uid, container=claim.container)
        for promise in outcome.promises:
            pod = promise.seeker.pod
            text = ",".join(words[device] for device in promise.devices)
            book.promised[pod.uid] = text
            book.seen = None
            before = pod.annotations.get(assign.device, "")
            self._record(
                "assignment-swapped", resource=name, pod=str(pod), before=before, after=text, other=promise.partner
            )
            self._marker.set(pod, {assign.device: text})
        for seeker in outcome.done:
            self._marker.set(seeker.pod, assign.marks)
        wrong = {
            wrong.seeker.uid: f"{wrong.seeker.pod} has {', '.join(wrong.devices)}, and was promised "
            f"{wrong.seeker.pod.annotations.get(assign.device, 'another device')}"
            for wrong in outcome.wrong
        }
        for uid, text in wrong.items():
            if book.wrong.get(uid) != text:
                self._record("assignment-wrong", resource=name, reason=text)
        book.wrong = wrong
        told = "; ".join(wrong.values())
        self._note(f"assign {name}", f"{told}. Delete the pod, so that it is admitted anew" if told else "")


def _of_one(sizes: Sequence[int]) -> str:
    """The size of one device. All of them, where they differ: programs read a single number."""
    return str(sizes[0]) if len(set(sizes)) == 1 else ",".join(map(str, sizes))

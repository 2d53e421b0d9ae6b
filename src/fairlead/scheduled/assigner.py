"""Assigning: gives each container the device that a scheduler wrote on its pod, and writes back that it has it.

Owns the waiting, the asking and the writing, behind two ports: the pods of this node, from a watch and, for a short
time, from a read; and the holders of slots, as the kubelet lists them. What is answered is decided in
`policy.scheduled.decide`, what follows afterwards in `policy.scheduled.observe`.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import cast

from msgspec.structs import replace

from fairlead.cluster.cluster import Cluster
from fairlead.cluster.errors import TooSlow
from fairlead.cluster.pods import PodCache
from fairlead.engine.grants import grant_on
from fairlead.model.assign import Assign
from fairlead.model.edits import Grant
from fairlead.model.errors import AskRefused, ClusterAway, NotAssigned
from fairlead.model.holdings import Holdings, Unknown
from fairlead.model.inventory import Conditions
from fairlead.model.names import DeviceId, ResourceName, SlotId
from fairlead.model.ports import Clock, Record
from fairlead.model.resource import Resource
from fairlead.policy.pods.requests import share
from fairlead.policy.scheduled import observe as effects
from fairlead.policy.scheduled.decide import (
    HOLDERS_DEADLINE_S,
    AskHolders,
    Give,
    PodsKnown,
    Question,
    ReadPods,
    Refuse,
    WaitForPods,
    as_preferred,
    ask_allocation,
    ask_preference,
    choose,
    decide,
    is_unasked,
)
from fairlead.policy.scheduled.explain import Explanation, explain
from fairlead.policy.scheduled.reconcile import GRACE_S
from fairlead.policy.scheduled.state import State, Texts, allocate, forget, offer, read_pods
from fairlead.scheduled.annotator import Annotator

# After an admission the kubelet is asked who has what: soon, and again until it says so.
PAUSES_S = (0.1, 0.3, 1.0, 3.0, 10.0)
RIVALS_MAX = 8  # in one line of the journal

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
        self._states: dict[ResourceName, State] = {}
        self._locks: defaultdict[ResourceName, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._ordered: Mapping[str, Texts] = {}  # by uid: what the annotations that assign devices are going to say
        self._keys: frozenset[str] = frozenset()
        self.pods = PodCache(cluster.client, cluster.node, keeps=lambda key: key in self._keys)
        self._watch = cluster.watch
        self._annotator = Annotator(cluster, self.pods, clock, record, note)
        self._due = asyncio.Event()  # there is something to verify
        self._reread = asyncio.Event()
        self._labels = False  # whether labels of the node matter

    # --- Life -----------------------------------------------------------------------------------------------------

    def tell(self, resources: Iterable[Resource], conditions: Conditions) -> None:
        """The resources as they are listed now, and the health of their devices."""
        self._states = {
            resource.name: offer(resource, assign, conditions, self._states.get(resource.name))
            for resource in resources
            if (assign := resource.terms.assign) is not None
        }

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
                group.create_task(self._annotator.run())
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
            self.pods.forget()  # the watch has ended, so nothing is decided by them

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
        kept = [SlotId(slot) for slot in must]
        free = set(cast("Sequence[SlotId]", available))  # there may be 80,000
        async with self._locks[resource.name]:
            state = self._state(resource.name, size)
            state, question = ask_preference(state, size, free, kept, self._clock.monotonic())
            self._states[resource.name] = state
            give = await self._answer(resource.name, question)
            state, chosen = choose(self._state(resource.name, size), question, give)
            self._states[resource.name] = state
            return chosen

    async def confirm(self, resource: Resource, ids: Sequence[str]) -> Grant:
        """The grant of one container, on the device that the scheduler chose for its pod."""
        name, amount = resource.name, len(ids)
        slots = frozenset(cast("Sequence[SlotId]", ids))
        async with self._locks[name]:
            unasked = is_unasked(self._state(name, amount), slots)
            try:
                give = as_preferred(self._state(name, amount), slots) if self.pods.now.complete else None
                if give is None:
                    state, question = ask_allocation(self._state(name, amount), list(slots), self._clock.monotonic())
                    self._states[name] = state
                    give = await self._answer(name, question)
                await self._know_node(self._state(name, amount), amount)
                state, request = self._state(name, amount), give.request
                shares = share(request.amount, request.devices, request.parts)
                variables = state.variables(request, give.found.pending if give.found is not None else None)
                strict = state.assign.strict
                grant = grant_on(resource, state.conditions, ids, shares, variables, strict=strict)
            except AskRefused as refusal:
                self._record("assignment-missing", resource=name, amount=amount, reason=str(refusal))
                if name in self._states:
                    self._states[name] = replace(self._states[name], free=None)
                raise
            state = allocate(state, give.found, slots, self._clock.monotonic(), unasked=unasked)
            self._states[name] = state
            if give.found is not None:
                self._record_assigned(state, give, slots)
            if not state.locked_for:
                self._unlock(state)
            return grant

    def forget(self, resource: Resource, ids: Sequence[str]) -> None:
        """A container was refused, whatever it had been granted: its pod's admission is over."""
        state = self._states.get(resource.name)
        if state is not None:
            self._states[resource.name] = forget(state, cast("Sequence[SlotId]", ids))
            self._unlock(state)

    def env(self, resource: Resource) -> Mapping[str, str]:
        """What the node's labels add to the environment."""
        state = self._states.get(resource.name)
        node = self._watch.latest.value.node
        labels = node.metadata.labels if node is not None else {}
        parts = state.assign.node_env if state is not None else ()
        return {name: text for part in parts if labels.get(part.label) == part.value for name, text in part.env.items()}

    def actual_devices(self) -> dict[tuple[ResourceName, SlotId], DeviceId]:
        """Slots whose container has another device than the one they are of."""
        return {(n, slot): device for n, s in self._states.items() for slot, device in s.actual_devices().items()}

    def explain(self, resource: ResourceName, amount: int) -> Explanation | None:
        """Which pod a request of this size would be for now. None: no scheduler chooses devices of this resource."""
        if resource not in self._states:
            return None
        return explain(self._state(resource, amount), amount, self._pods_known(self._clock.monotonic()))

    # --- What is known, and who is asked --------------------------------------------------------------------------

    def _state(self, name: ResourceName, amount: int = 0) -> State:
        """The state, with the pods as they are now. While they are read anew it keeps the last ones."""
        if name not in self._states:  # new rules came between the question and its answer
            raise NotAssigned(name, amount, self._node, "the rule has just lost its assign")
        if not self.pods.now.complete:
            return self._states[name]
        pods = self.pods.now.pods
        if pods and not self._ordered.keys() <= pods.keys():
            self._ordered = {uid: texts for uid, texts in self._ordered.items() if uid in pods}
        state = self._states[name] = read_pods(self._states[name], pods, self._ordered)
        return state

    async def _answer(self, name: ResourceName, question: Question) -> Give:
        """Does what decisions ask for until there is an answer."""
        while True:
            seen, now_s = self.pods.latest.version, self._clock.monotonic()
            state, decision = decide(self._state(name, question.amount), question, self._pods_known(now_s), now_s)
            self._states[name] = state
            match decision:
                case Give():
                    return decision
                case ReadPods():
                    await self.pods.check()
                    question = replace(question, read=True)
                case AskHolders(timeout_s):
                    await self._observe(name, timeout_s, grace_s=0.0)
                    question = replace(question, asked=True)
                case WaitForPods(timeout_s, last):
                    over = False
                    try:
                        await self.pods.wait_for_news(seen, timeout_s)
                    except TooSlow:
                        over = last
                    question = replace(question, waited=True, asked=False, over=over)
                case Refuse(reason, away):
                    refusal = ClusterAway if away else NotAssigned
                    raise refusal(name, question.amount, self._node, reason)

    def _pods_known(self, now_s: float) -> PodsKnown:
        pods, now = self.pods, self.pods.now
        return PodsKnown(now.complete, now.problem, now.read_s, pods.silent_s, pods.is_away, pods.patience.left(now_s))

    async def _know_node(self, state: State, amount: int) -> None:
        """Labels that decide about a container's environment must be known before it begins."""
        if not state.assign.node_env or self._watch.latest.value.node is not None:
            return
        await self._watch.check()
        patience, began_s = self.pods.patience, self._clock.monotonic()
        try:
            async with asyncio.timeout(min(state.assign.wait_s, patience.left(began_s))):
                async for now in self._watch.latest.follow():
                    if now.node is not None:
                        return
        except TimeoutError:
            problem = self._watch.latest.value.problem or "its labels are not read yet"
            raise ClusterAway(state.name, amount, self._node, problem) from None
        finally:
            now_s = self._clock.monotonic()
            patience.spend(now_s, now_s - began_s)

    def _unlock(self, state: State) -> None:
        if state.assign.node_lock:
            self._annotator.unlock(state.assign.node_lock)

    def _record_assigned(self, state: State, give: Give, slots: frozenset[SlotId]) -> None:
        assert give.found is not None
        request, rivals = give.request, give.found.rivals
        lie_on = {slot.device for one in slots if (slot := state.resource.by_id.get(one)) is not None}
        self._record(
            "assigned",
            resource=state.name,
            pod=str(give.found.pending.pod),
            container=request.container,
            devices=request.devices,
            **({"slots_of": sorted(lie_on)} if lie_on != set(request.devices) else {}),
            **({"rivals": [str(rival.pod) for rival in rivals[:RIVALS_MAX]]} if rivals else {}),
        )
        self._due.set()

    # --- Whether it was right -------------------------------------------------------------------------------------

    async def _verify(self) -> None:
        """After each admission, until the kubelet has shown who has what."""
        step = 0
        while True:
            if step == len(PAUSES_S):
                await self._due.wait()
                step = 0
            self._due.clear()
            await self._clock.sleep(PAUSES_S[step])
            settled = bool(self._states)
            for name in list(self._states):
                if self._locks[name].locked() or not self.pods.now.complete:
                    settled = False  # a question waits for its pod; the other resources do not wait for it
                    continue
                await self.verify(name)
                settled = settled and not (name in self._states and self._states[name].unsettled)
            after = len(PAUSES_S) if settled else min(step + 1, len(PAUSES_S) - 1)
            step = 0 if self._due.is_set() else after

    async def verify(self, name: ResourceName, grace_s: float = GRACE_S) -> None:
        if name not in self._states:  # new rules came while another resource was verified
            return
        known = self._states[name].strangers
        async with self._locks[name]:
            await self._observe(name, HOLDERS_DEADLINE_S, grace_s=grace_s)
        if name in self._states and self._states[name].strangers - known:
            await self.pods.check()  # the kubelet has admitted pods that the watch has not shown
            async with self._locks[name]:
                await self._observe(name, HOLDERS_DEADLINE_S, grace_s=grace_s)

    async def _observe(self, name: ResourceName, timeout_s: float, *, grace_s: float) -> None:
        holdings = await self._read_holders(timeout_s)
        if isinstance(holdings, Unknown):
            self._note("assign", f"whether pods have the right devices is not known: {holdings.reason}")
            return
        self._note("assign", "")
        if not self.pods.now.complete or name not in self._states:
            return
        others = [self._state(other) for other in self._states if other != name]
        held, now_s = holdings.by_holder(name), self._clock.monotonic()
        state, due = effects.observe(self._state(name), held, others, now_s, grace_s)
        self._states[name] = state
        for effect in due:
            match effect:
                case effects.Annotate(pod, texts, reassigns):
                    if reassigns:
                        self._ordered = {**self._ordered, pod.uid: texts}
                        self._due.set()  # that it has its devices is written when all is as it says
                    self._annotator.set(pod, texts)
                case effects.Unlock():
                    self._unlock(state)
                case effects.Record(event, keys):
                    self._record(event, **keys)
                case effects.Note(topic, problem):
                    self._note(topic, problem)

"""Extender: the four questions of kube-scheduler, answered from the view; binds through the binder.

Owns the order of things around a pod: tentative room at filter, devices and room at bind, room given back when a bind
fails, and the news to pods that were refused and fit now.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import msgspec
from msgspec import Struct

from fairlead.cluster.client import Client
from fairlead.cluster.errors import ClusterError
from fairlead.cluster.kinds import PODS
from fairlead.cluster.patches import MergePatch
from fairlead.model.ports import Clock, Record
from fairlead.policy.packing.demand import write_annotations
from fairlead.policy.packing.packing import Origin
from fairlead.policy.pods.requests import Fault
from fairlead.scheduler.answers import best_nodes, refusals, scores, victims
from fairlead.scheduler.binder import Binder, Outcome
from fairlead.scheduler.feed import Feed
from fairlead.scheduler.objects import PodObject, read_pod
from fairlead.scheduler.protocol import (
    BindingArgs,
    BindingResult,
    ExtenderArgs,
    FilterResult,
    HostPriority,
    MetaPod,
    MetaVictims,
    NodeList,
    PreemptionArgs,
    PreemptionResult,
    read_node,
)
from fairlead.scheduler.view import Asked, View

FRESH_S = 0.1  # for the watch to show the pod itself before a refusal
MOMENT_S = 0.02  # for it to show what else the scheduler has seen
MOMENT_EVERY_S = 0.1  # but not before each of many refusals
GROUP_S = 0.25  # for the binds of a group to come, or the nominations of those that are bound late
BIND_S = 3.0  # of the 5 s that kube-scheduler waits
SETTLE_S = 30.0  # for a bind that was not answered, again and again
WOKEN = "scheduler.fairlead/woken"
WAKE_MAX = 64  # at once: those that do not fit after all are refused again, and wait on
EXPIRE_S = 1.0
NO_ROOM, CONFLICT = "no-room", "conflict"
BINDS = (*(outcome.value for outcome in Outcome), NO_ROOM, CONFLICT)


class ExtenderTerms(Struct, frozen=True):
    nodes: int = 16  # how many a filter answers with
    wakes: bool = True  # whether pods that were refused are told when they fit
    maps: bool = True  # whether ConfigMaps are read that list unusable devices


class NotReady(Exception):
    """The view is not complete."""


class Extender:
    def __init__(self, client: Client, view: View, terms: ExtenderTerms, record: Record) -> None:
        self._client, self._terms, self._record = client, terms, record
        self._clock: Clock = client.clock
        self._caught_up_s = -MOMENT_EVERY_S
        self.view = view
        self.feed = Feed(client, view, self._room, maps=terms.maps)
        self._binder = Binder(client)
        self._wake = asyncio.Event()
        self._freed: set[str] = set()  # since the last look at pods that were refused: whose room, by group
        self._settling: dict[str, asyncio.Task[None]] = {}  # binds that are not answered yet, by the pod's uid
        self.answers: Counter[tuple[str, str]] = Counter()  # by verb and result
        self.binds: Counter[str] = Counter()  # by what became of them: BINDS
        self.wakes = 0
        self._now_ns: Callable[[], int] = lambda: int(self._clock.now() * 1e9)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.feed.run())
            group.create_task(self._expire())
            if self._terms.wakes:
                group.create_task(self._tell_refused())

    # --- filter -----------------------------------------------------------------------------------------------------

    async def filter(self, args: ExtenderArgs) -> FilterResult:
        if args.pod is None:
            return FilterResult(error="the request has no Pod")
        if args.node_names is None:
            return self._filter_objects(args)
        self._check_ready()
        asked = self._asked(args.pod)
        if asked is None:
            return FilterResult(node_names=args.node_names)
        if isinstance(asked, Asked):
            if self.view.release(asked.uid, Origin.TENTATIVE):
                self._room(asked.seen.group)
            names = best_nodes(self.view, asked, args.node_names, self._terms.nodes)
            if not names:
                await self._catch_up(args.pod)
                names = best_nodes(self.view, asked, args.node_names, self._terms.nodes)
            if not names and await self._settle_groups(asked):
                names = best_nodes(self.view, asked, args.node_names, self._terms.nodes)
            if names:
                self.view.refused.pop(asked.uid, None)
                self._book_tentatively(asked, names[0])
                return FilterResult(node_names=names)
            self.view.refuse(asked)
        why = refusals(self.view, asked, args.node_names)
        return FilterResult(node_names=[], failed_nodes=why.now, failed_and_unresolvable_nodes=why.for_good or None)

    def _filter_objects(self, args: ExtenderArgs) -> FilterResult:
        """Whole nodes: some may not exist yet. Answered from what they say, and nothing is booked."""
        if args.pod is None or args.nodes is None:
            return FilterResult(error="the request has neither NodeNames nor Nodes")
        asked = self._asked(args.pod)
        try:
            read = [(raw, read_node(raw)) for raw in args.nodes.items or ()]
        except msgspec.DecodeError as error:
            return FilterResult(error=f"a node cannot be read: {error}")
        nodes = {node.metadata.name: (raw, node) for raw, node in read}
        if asked is None:
            return FilterResult(nodes=args.nodes, node_names=list(nodes))
        apart = self.view.apart([node for _, node in nodes.values()])
        names = best_nodes(apart, asked, nodes, len(nodes)) if isinstance(asked, Asked) else []
        why = refusals(apart, asked, [name for name in nodes if name not in names])
        fitting = NodeList([nodes[name][0] for name in nodes if name in names])
        return FilterResult(fitting, [name for name in nodes if name in names], why.now, why.for_good or None)

    async def _catch_up(self, found: PodObject) -> None:
        """The scheduler's own watch may be ahead of ours: what it has seen should be seen before a refusal.

        How far it is ahead is known of the pod alone. To ask the API server for its version takes up to 100 ms, and
        waiting for it as long again, because it counts the changes of all kinds; and kube-scheduler does nothing else
        meanwhile. So the watch is given a moment. A pod that is refused too early all the same is told later.
        """
        await self.feed.wait_for(found.metadata.resource_version, FRESH_S)
        if self._clock.monotonic() - self._caught_up_s >= MOMENT_EVERY_S:
            await self._clock.sleep(MOMENT_S)
            self._caught_up_s = self._clock.monotonic()

    async def _settle_groups(self, asked: Asked) -> bool:
        """Whether groups that fit nowhere gave room back.

        kube-scheduler asks about another pod when it is done with a group: it binds its members now, or none of them,
        and does not say which. It may try a group again and again without a pause, so that its room never expires.
        """
        groups = self.view.groups_beside(asked)
        if not groups:
            return False
        await self._clock.sleep(GROUP_S)
        freed = self.view.release_groups(groups)
        if freed:
            self._room(*groups)
        return freed

    def _book_tentatively(self, asked: Asked, node: str) -> None:
        places = self.view.choose(asked, node)
        if places is not None:
            self.view.book(asked, node, places, Origin.TENTATIVE, self._clock.monotonic())

    # --- prioritize, preempt ----------------------------------------------------------------------------------------

    async def prioritize(self, args: ExtenderArgs) -> list[HostPriority]:
        names = args.node_names
        if names is None:
            names = [read_node(raw).metadata.name for raw in (args.nodes.items if args.nodes else None) or ()]
        asked = self._asked(args.pod) if args.pod is not None else None
        if not isinstance(asked, Asked) or not self.feed.ready:
            return [HostPriority(name, 0) for name in names]
        return [HostPriority(name, score) for name, score in scores(self.view, asked, names).items()]

    async def preempt(self, args: PreemptionArgs) -> PreemptionResult:
        self._check_ready()
        violations: dict[str, int] = {}
        given: dict[str, list[str]] = {}
        for name, meta in (args.node_name_to_meta_victims or {}).items():
            given[name], violations[name] = [pod.uid for pod in meta.pods or ()], meta.violations
        for name, whole in (args.node_name_to_victims or {}).items():
            given[name] = [pod.metadata.uid for pod in whole.pods or ()]
            violations[name] = whole.violations
        asked = self._asked(args.pod) if args.pod is not None else None
        chosen = victims(self.view, asked, given) if isinstance(asked, Asked) else given
        return PreemptionResult(
            {name: MetaVictims([MetaPod(uid) for uid in uids], violations[name]) for name, uids in chosen.items()}
        )

    # --- bind -------------------------------------------------------------------------------------------------------

    async def bind(self, args: BindingArgs) -> BindingResult:
        if not (args.pod_name and args.pod_namespace and args.pod_uid and args.node):
            return BindingResult("the request lacks one of PodName, PodNamespace, PodUID and Node")
        self._check_ready()
        if args.pod_uid in self._settling:
            return BindingResult("an earlier bind of the pod is not answered yet, and is sent again until it is")
        asked = self.view.waiting(args.pod_uid) or await self._read(args)
        if isinstance(asked, str):
            return BindingResult(asked)
        places = self.view.choose(asked, args.node)
        if places is None:
            if self.view.release(args.pod_uid, Origin.TENTATIVE):
                self._room(asked.seen.group)
            self.binds[NO_ROOM] += 1
            why = refusals(self.view, asked, [args.node])
            reason = {**why.now, **why.for_good}.get(args.node, "it does not fit")
            return BindingResult(f"pod {asked.seen.pod} on node {args.node}: {reason}")
        if self.view.book(asked, args.node, places, Origin.BOUND):
            self._room(asked.seen.group)
        annotations: dict[str, str] = {}
        for (position, _), chosen in zip(asked.demands, places, strict=True):
            devices = self.view.packings[position].nodes[args.node].devices
            contract = self.view.terms[position].contract
            annotations |= write_annotations(asked.seen.pod, contract, devices, chosen, self._now_ns())
        who = (args.pod_namespace, args.pod_name, args.pod_uid)
        bound = await self._binder.bind(*who, args.node, annotations, BIND_S)
        lost = bound.conflict and bound.outcome is Outcome.REFUSED
        self.binds[CONFLICT if lost else bound.outcome.value] += 1
        if bound.outcome is Outcome.UNKNOWN:
            self._settle_later(args, annotations, bound.reason)
        elif bound.outcome is Outcome.REFUSED:
            self._give_back(args, bound.found)
        return BindingResult(bound.reason)

    async def _read(self, args: BindingArgs) -> Asked | str:
        """The watch has not shown the pod yet, or it asks for nothing of ours."""
        try:
            found = await self._client.get(PODS, args.pod_name, PodObject, namespace=args.pod_namespace)
        except ClusterError as error:
            return str(error)
        if found.metadata.uid != args.pod_uid:
            return f"the pod {args.pod_namespace}/{args.pod_name} is another one than the scheduler means"
        if found.spec.node_name:
            self.view.put_pod(found)
            return f"the pod {args.pod_namespace}/{args.pod_name} is bound to {found.spec.node_name} already"
        asked = self._asked(found)
        if isinstance(asked, Fault):
            return asked.text
        return asked or f"the pod {args.pod_namespace}/{args.pod_name} asks for no resource of this extender"

    def _settle_later(self, args: BindingArgs, annotations: dict[str, str], reason: str) -> None:
        """The pod may be bound at any time: its devices stay booked, and the same bind is sent again."""

        async def settle() -> None:
            who = (args.pod_namespace, args.pod_name, args.pod_uid)
            while (bound := await self._binder.bind(*who, args.node, annotations, SETTLE_S)).outcome is Outcome.UNKNOWN:
                pass
            if bound.outcome is Outcome.REFUSED:
                self._give_back(args, bound.found)

        self._record("bind-unknown", pod=f"{args.pod_namespace}/{args.pod_name}", node=args.node, reason=reason)
        task = asyncio.create_task(settle(), name="settle-bind")
        self._settling[args.pod_uid] = task
        task.add_done_callback(lambda _: self._settling.pop(args.pod_uid, None))

    def _give_back(self, args: BindingArgs, found: PodObject | None) -> None:
        """What the pod has instead counts at once: the watch may be late, and its devices must not be given away."""
        freed = self.view.release(args.pod_uid, Origin.BOUND)
        if found is not None and found.spec.node_name:
            self.view.put_pod(found)
        if freed:
            self._room()

    @property
    def unsettled(self) -> int:
        """Binds of which it is not known yet whether they were done."""
        return len(self._settling)

    # --- Around them ------------------------------------------------------------------------------------------------

    def _asked(self, found: PodObject) -> Asked | Fault | None:
        return self.view.asked(read_pod(found, self.view.keeps))

    def _check_ready(self) -> None:
        if not self.feed.ready:
            raise NotReady(self.feed.problem or "the lists of nodes and pods are not read yet")

    def _room(self, *groups: str) -> None:
        """There is room. `groups`: of the pods that had it, where no pod was bound to it."""
        if self.view.refused:
            self._freed |= set(groups) or {""}
            self._wake.set()

    async def _expire(self) -> None:
        while True:
            await self._clock.sleep(EXPIRE_S)
            if groups := self.view.expire(self._clock.monotonic()):
                self._room(*groups)

    async def _tell_refused(self) -> None:
        """The scheduler asks again about a pod that changes. What changes only here wakes it up by nothing else."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await asyncio.sleep(0)  # changes of one moment together
            freed, self._freed = self._freed, set()
            for asked in self.view.fitting_again(WAKE_MAX, freed):
                pod = asked.seen.pod
                body = {"metadata": {"uid": pod.uid, "annotations": {WOKEN: str(self._now_ns())}}}
                try:
                    await self._client.patch(PODS, pod.name, MergePatch(body), PodObject, namespace=pod.namespace)
                    self.wakes += 1
                except ClusterError as error:
                    self._record("wake-failed", pod=str(pod), reason=str(error))

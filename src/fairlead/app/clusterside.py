"""ClusterSide: all that a daemon does with the cluster, as far as its configuration asks for it. Loaded only then.

Owns which parts run. Each has permissions of its own, so a part that no setting asks for does not run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Protocol

from fairlead.app.cluster import open_cluster
from fairlead.cluster import reflector
from fairlead.config.load import Loaded
from fairlead.config.spec import ClusterSpec
from fairlead.fronts.nodestatus.amounts import Publisher
from fairlead.kit.calls import explain
from fairlead.kit.supervise import SupervisedLoop
from fairlead.model.health import Cause
from fairlead.model.inventory import Conditions, Inventory
from fairlead.model.names import DeviceId, ResourceName, SlotId
from fairlead.model.ports import Clock, Record
from fairlead.model.resource import Resource
from fairlead.policy.offering.units import UNITS
from fairlead.scheduled.assigner import Assigner, ReadHolders
from fairlead.scheduled.nodeannotation import DevicesAnnotations, UnhealthyAnnotation, UnitAnnotation

if TYPE_CHECKING:
    from fairlead.fronts.nodestatus.annotations import NodeAnnotations
    from fairlead.fronts.nodestatus.condition import NodeCondition
    from fairlead.fronts.nodestatus.events import NodeEvents
    from fairlead.policy.scheduled.explain import Explanation

RETRY_S = 5.0
STEADY_S = 10.0  # a part that has run for so long works again
KNOCK_S = reflector.PING_S + 0.1  # a person waits so long only where the server gives no answer


class Part(Protocol):
    async def run(self) -> None: ...


class ClusterSide:
    """Run it as a task; tell it of every inventory."""

    def __init__(
        self, loaded: Loaded, clock: Clock, record: Record, note: Callable[[str, str], None], holders: ReadHolders
    ) -> None:
        """Raises ConfigError or NoAccess when it is not known where the cluster is, or which node this is."""
        self._cluster = open_cluster(loaded, clock)
        self._record, self._note = record, note
        self._amounts: Publisher | None = None
        self._unhealthy: UnhealthyAnnotation | None = None
        self._units: UnitAnnotation | None = None
        self._devices: DevicesAnnotations | None = None
        self._condition: NodeCondition | None = None
        self._events: NodeEvents | None = None
        self._annotations: NodeAnnotations | None = None
        self.assigner: Assigner | None = None
        self._clock, self._holders = clock, holders
        self._due = asyncio.Event()
        self._running: set[object] = set()
        self._knocking: set[asyncio.Task[None]] = set()
        self.open(loaded)

    def open(self, loaded: Loaded) -> None:
        """What a configuration asks for, and no earlier one did."""
        if loaded.amounts and self._amounts is None:
            client, watch = self._cluster.client, self._cluster.watch
            report = partial(self._note, "amounts")
            self._amounts = Publisher(client, watch, loaded.config.instance, self._record, report)
        assigns = [rule.terms.assign for rule in loaded.rules if rule.terms.assign is not None]
        if assigns and self.assigner is None:
            self.assigner = Assigner(self._cluster, self._clock, self._record, self._note, self._holders)
        if self.assigner is not None:
            self.assigner.read(assigns)
        if (annotation := loaded.config.cluster.unhealthy) and self._unhealthy is None:
            self._unhealthy = UnhealthyAnnotation(self._cluster, annotation, self._clock, self._record, self._note)
        shares = bool(loaded.amounts) and any(rule.terms.memory for rule in loaded.rules)
        if shares and self._units is None:
            annotation = UNITS + loaded.config.instance
            self._units = UnitAnnotation(self._cluster, annotation, self._clock, self._record, self._note)
        if loaded.config.cluster.devices and self._devices is None:
            self._devices = DevicesAnnotations(self._cluster, "", self._clock, self._record, self._note)
        self._open_reports(loaded.config.cluster)  # few have them: what they need is loaded then
        self._due.set()

    def _open_reports(self, cluster: ClusterSpec) -> None:
        """What tells of faults and of devices on the node itself."""
        if cluster.condition is not None and self._condition is None:
            from fairlead.fronts.nodestatus.condition import ConditionTerms, NodeCondition  # noqa: PLC0415 - see open

            terms = ConditionTerms(cluster.condition.type, tuple(cluster.condition.codes))
            self._condition = NodeCondition(self._cluster, terms, self._record, self._note)
        if cluster.events is not None and self._events is None:
            from fairlead.fronts.nodestatus.events import EventTerms, NodeEvents  # noqa: PLC0415 - see open

            spec = cluster.events
            event_terms = EventTerms(spec.reason, spec.component, spec.message, tuple(spec.codes))
            self._events = NodeEvents(self._cluster, event_terms, self._record, self._note)
        if cluster.annotate and self._annotations is None:
            from fairlead.fronts.nodestatus.annotations import NodeAnnotations  # noqa: PLC0415 - see open

            manager = cluster.field_manager
            self._annotations = NodeAnnotations(self._cluster, cluster.annotate, manager, self._record, self._note)

    def fault(self, cause: Cause) -> bool:
        """Whether a part takes reports of faults."""
        parts = [part for part in (self._condition, self._events) if part is not None]
        for part in parts:
            part.report(cause.code)
        return bool(parts)

    def tell(self, loaded: Loaded, inventory: Inventory, conditions: Conditions, resources: Iterable[Resource]) -> None:
        listed = list(resources)
        if self._amounts is not None:
            self._amounts.offer(inventory, conditions, loaded.amounts)
        if self.assigner is not None:
            self.assigner.tell(listed, conditions)
        if self._unhealthy is not None:
            self._unhealthy.tell(listed, conditions)
        if self._units is not None:
            self._units.tell(listed)
        if self._devices is not None:
            self._devices.tell(listed, conditions)
        if self._annotations is not None:
            self._annotations.tell(inventory)

    @property
    def answers(self) -> bool | None:
        """Whether the API server answered the last request; None: none was sent."""
        return self._cluster.client.answers

    def env(self, resource: Resource) -> Mapping[str, str]:
        return self.assigner.env(resource) if self.assigner is not None else {}

    def actual_devices(self) -> Mapping[tuple[ResourceName, SlotId], DeviceId]:
        return self.assigner.actual_devices() if self.assigner is not None else {}

    def explain(self, resource: Resource, amount: int) -> Explanation | None:
        """Which pod a request would be for, where a scheduler chooses the devices."""
        return self.assigner.explain(resource.name, amount) if self.assigner is not None else None

    async def knock(self) -> None:
        """Looks whether a silent server still answers, and waits until that is known."""
        tasks = {asyncio.create_task(self._cluster.watch.ping())}
        if self.assigner is not None:
            tasks.add(asyncio.create_task(self.assigner.pods.ping()))
        self._knocking = {task for task in self._knocking if not task.done()} | tasks
        await asyncio.wait(tasks, timeout=KNOCK_S)

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    await self._due.wait()
                    self._due.clear()
                    for part in self._parts():
                        if part is not None and part not in self._running:
                            self._running.add(part)
                            group.create_task(self._keep(part))
        finally:
            await self._cluster.close()

    def _parts(self) -> tuple[Part | None, ...]:
        reports = (self._condition, self._events, self._annotations)
        return (self._amounts, self.assigner, self._unhealthy, self._units, self._devices, *reports)

    async def _keep(self, part: Part) -> None:
        """A part that fails is reported and started again: without it pods would be refused for ever."""
        name = type(part).__name__.lower()
        await SupervisedLoop(
            name,
            part.run,
            clock=self._clock,
            rng=self._cluster.client.rng,
            report=partial(self._note, name),
            record=self._record,
            steady_s=STEADY_S,
            first_s=RETRY_S,
            describe=lambda error: f"the task {name!r} had to be started again: {explain(error)}",
        ).run()

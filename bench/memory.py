"""60,000 units of memory: what it costs to list them, to place a request among them, and to tell of a fault.

Owns the machine, three cards of 20,000 MiB in units of 1 MiB, and what is asked of it. What is wanted: SHEET.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any

from bench import contestants, measure
from bench.contestants import Contestant
from bench.process import PluginFailedError
from bench.rows import OURS, Results, Row, Sheet, Target

from fairlead.engine.listing import Listing
from fairlead.fronts.deviceplugin.encoding import make_device_list, with_conditions
from fairlead.model.device import Device
from fairlead.model.health import Cause, CauseKind, Condition, Health
from fairlead.model.inventory import ALL_HEALTHY, Conditions, Inventory
from fairlead.model.names import DeviceId, ResourceName
from fairlead.model.resource import MemoryTerms, Terms
from fairlead.policy.offering.memory import MIB
from fairlead.policy.offering.rules import ANY, Rule
from fairlead.wire import deviceplugin as dp
from fairlead.wire.proto import decode, encode

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.measure import Effort, OpenKubelet

CARDS, CARD_MIB = 3, 20_000
SLOTS = CARDS * CARD_MIB
ASKED = 16_384  # 16 GiB
ADMISSIONS, WARM_UP = 25, 3
PATIENCE_S = 120.0
RESOURCE = ResourceName("example.com/gpu-memory")

SHEET = Sheet(
    "memory",
    f"{SLOTS:,} units of 1 MiB, and a request for 16 GiB of them",
    (),
    (
        Row("first_frame", "ListAndWatch → list", "s", 3),
        Row("admit_p50", "preferred + Allocate p50", "ms", 1),
        Row("admit_p99", "preferred + Allocate p99", "ms", 1),
        Row("ids", "of that, ids read and written", "ms", 1),
        Row("fault", "a fault: rules, list, budget", "ms", 1),
        Row("pss", "PSS on top of 8 slots", "MB", 1),
    ),
    (
        Target("first_frame", None, at_most=0.5),
        Target("admit_p50", None, at_most=60),
        Target("fault", None, at_most=100),
        Target("pss", None, at_most=40),
    ),
)


def contestant() -> Contestant:
    fleet = {"devices": [{"count": CARDS, "vendor": "nvidia", "memory": f"{CARD_MIB}MiB", "numa": [0, 1, 1]}]}
    return contestants.simulated(RESOURCE, fleet, {"resource": RESOURCE, "memory": {"unit": "1MiB"}})


async def run(effort: Effort, open_kubelet: OpenKubelet, say: Callable[[str], None]) -> Results:
    results = Results(SHEET)
    for number in range(effort.rounds):
        say(f"{SLOTS:,} units of memory: {number + 1} of {effort.rounds}")
        async with measure.staged(contestants.ours(), open_kubelet) as stage:
            base = measure.footprint(stage)
        async with measure.staged(contestant(), open_kubelet) as stage:
            ids = await stage.ids()
            if len(ids) != SLOTS:
                raise PluginFailedError(f"{len(ids):,} units were listed, not {SLOTS:,}")
            random.Random(number).shuffle(ids)  # as a kubelet sends them
            numbers = {"first_frame": measure.frame_times(stage)["slots_first_frame"]}
            admit = await stage.ask(
                "admit", available=ids, size=ASKED, count=ADMISSIONS, warmup=WARM_UP, timeout_s=PATIENCE_S
            )
            numbers |= {f"admit_{which}": admit["spread"][f"{which}_us"] / 1e3 for which in ("p50", "p99")}
            numbers["pss"] = measure.footprint(stage)["pss"] - base["pss"]
        results.add(OURS, numbers | {"ids": _ids_ms(ids), "fault": _fault_ms()})
    return results


def _ids_ms(ids: list[str]) -> float:
    """Below this no plugin of ours can come: the question and Allocate are read, the answer is written."""
    ask: Any = dp.ContainerPreferredAllocationRequest(available_ids=tuple(ids), allocation_size=ASKED)
    question = encode(dp.PreferredAllocationRequest(container_requests=(ask,)))
    chosen = tuple(ids[:ASKED])
    answer = dp.ContainerPreferredAllocationResponse(device_ids=chosen)
    allocate = encode(dp.AllocateRequest(container_requests=(dp.ContainerAllocateRequest(device_ids=chosen),)))

    def once() -> None:
        decode(dp.PreferredAllocationRequest, question)
        encode(dp.PreferredAllocationResponse(container_responses=(answer,)))
        decode(dp.AllocateRequest, allocate)

    return min(_time_ms(once) for _ in range(5))


def _fault_ms() -> float:
    """What a card that fails and heals costs the loop, once each; the slower counts."""
    cards = tuple(
        Device(DeviceId(f"card{number}"), index=str(number), memory_bytes=CARD_MIB * MIB) for number in range(CARDS)
    )
    sick = Conditions({cards[0].id: Condition(Health.UNHEALTHY, Cause("xid-79", CauseKind.PERMANENT), 1.0)})
    rules = (Rule(ANY, RESOURCE, terms=Terms(memory=MemoryTerms(MIB, grow=False))),)
    (resource,) = Listing().settle(Inventory(cards), rules, {}, 0.0)
    device_list = make_device_list(resource, ALL_HEALTHY)

    def publish(conditions: Conditions) -> None:
        nonlocal device_list
        device_list = with_conditions(device_list, conditions)

    return min(max(_time_ms(lambda: publish(sick)), _time_ms(lambda: publish(ALL_HEALTHY))) for _ in range(5))


def _time_ms(work: Callable[[], None]) -> float:
    begin_ns = time.perf_counter_ns()
    work()
    return (time.perf_counter_ns() - begin_ns) / 1e6

"""Memory of GPUs as a resource, with the true scheduler: nothing is given twice, and what is refused had no room."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import accumulate, count
from typing import Any

from fairlead.model.names import DeviceId
from fairlead.policy.offering.memory import MIB, read_id, short_name
from tests.node.cluster import POD_S, Cluster
from tests.node.conftest import Measure
from tests.node.daemon import HEALTH, Fairlead
from tests.node.ledger import SEVERAL, date, unexplained, unseen
from tests.node.load import Cards, Load
from tests.node.owner import JOB, REPLICA_SET, Owner
from tests.node.rig.steps import until
from tests.node.trouble import Trouble

Make = Callable[[dict[str, Any]], Fairlead]
GIB = 1024
CARDS_MIB = (16 * GIB, 24 * GIB, 32 * GIB, 48 * GIB + 512)  # half a unit of the last one is left over
TOTAL = sum(mib // GIB for mib in CARDS_MIB)
EQUAL = 4  # divides every card
SIZES = (1, 1, 2, 2, 2, 3, 3, 4, 4, 5, 6, 8, 12)


def config(resource: str, cards_mib: tuple[int, ...] = CARDS_MIB) -> dict[str, Any]:
    groups = [{"count": 1, "vendor": "sim", "memory": f"{mib}MiB", "id": "GPU-{uuid}"} for mib in cards_mib]
    return {
        "backends": [{"kind": "sim", "fleet": {"name": resource.partition("/")[2], "devices": groups}}],
        "rules": [{"resource": resource, "memory": {"unit": "1GiB"}}],
        "health": HEALTH,
    }


def cards(cluster: Cluster, resource: str, cards_mib: tuple[int, ...] = CARDS_MIB) -> Cards:
    """As the kubelet and the containers name them. The id of a unit holds the first digits of its card's."""
    units = Counter(_short(slot) for slot in cluster.offered(resource))
    by_units = {mib // GIB: mib for mib in cards_mib}
    word = "".join(char if char.isalnum() else "_" for char in resource.upper())

    def told(env: Mapping[str, str]) -> tuple[str, int] | None:
        device = env.get(f"FAIRLEAD_MEMORY_DEVICES_{word}")
        return (short_name(DeviceId(device)), int(env[f"FAIRLEAD_MEMORY_MIB_{word}"])) if device else None

    return Cards(units, {card: by_units[own] for card, own in units.items()}, GIB, _short, told)


def _short(slot: str) -> str:
    part = read_id(slot)
    assert part is not None, f"{slot} is no id of memory"
    assert part.unit_bytes == GIB * MIB
    return part.short


class Run:
    """A daemon with cards, pods that come in bursts, and trouble in the middle of them."""

    def __init__(self, cluster: Cluster, daemon: Fairlead, resource: str) -> None:
        self._cluster = cluster
        self._resource = resource
        self._names = count()
        self._trouble = Trouble(cluster, daemon, resource, TOTAL)
        self._seen = 0
        self.daemon = daemon
        self.chance = random.Random(6)  # fixed, so that a failure comes again
        self.cards = cards(cluster, resource)
        self.load = Load(cluster, resource, self.cards)

    def burst(self, sizes: list[int], *, trouble: bool) -> list[int]:
        """Makes pods of these sizes, until all is quiet. Answers the sizes that were refused and must come again."""
        if trouble:
            middle = len(sizes) // 2
            self._make(sizes[:middle])
            with self.load.away():
                self._trouble.begin()
                self._make(sizes[middle:])
                self._trouble.wait_over()
        else:
            self._make(sizes)
        self.load.settle()
        again = [one.sizes[0] for one in self.load.refused[self._seen :]]
        self._seen = len(self.load.refused)
        return again

    def release(self, part: float) -> None:
        """Lets go of some pods. The next burst comes at once."""
        ready = sorted(self.load.ready)
        self.load.release(self.chance.sample(ready, round(len(ready) * part)))

    def room(self) -> int:
        """What no pod asks for, when those that were let go are gone."""
        return TOTAL - sum(sum(sizes) for name, sizes in self.load.sizes.items() if name not in self.load.let_go)

    def _make(self, sizes: list[int]) -> None:
        for size in sizes:
            self.load.make(f"pod{next(self._names)}", (size,))

    def judge(self) -> None:
        """No refusal without a reason; and all that was given comes back."""
        scattered = [one for one in self.load.refused if one.is_for_want_of_one_card()]
        others = [one for one in self.load.refused if not one.is_for_want_of_one_card()]
        print(f"{len(scattered)} pods found no card with room, {len(others)} came while something was away")
        assert [one for one in others if not self.load.is_away(one)] == []
        refusals = self.daemon.facts("allocate-refused")
        assert all(any(fact["reason"] in one.message for fact in refusals) for one in scattered)
        grants = self.daemon.facts("allocated")
        date(self.load.stays, grants)
        lost = unseen(self.load.stays, grants, self.load.looks, self.cards.card_of)
        print(f"{len(lost)} grants of {len(grants)} were over before they were seen")
        stays = [*self.load.stays, *lost]
        assert unexplained(self.cards.units, stays, refusals, self.load.outages, grants) == []
        self.load.release(self.load.sizes)
        self.load.settle()
        assert self._cluster.holdings(self._resource) == {}
        assert len(self._cluster.offered(self._resource)) == TOTAL


@contextmanager
def running(cluster: Cluster, fairlead: Make, resource: str) -> Iterator[Run]:
    daemon = fairlead(config(resource))
    daemon.start()
    cluster.wait_numbers(resource, TOTAL, TOTAL)
    run = Run(cluster, daemon, resource)
    yield run
    run.judge()


def test_equal_pods_fill_every_card_over_restarts(cluster: Cluster, fairlead: Make, resource: str, measure: Measure):
    """A size that divides every card: what is free together is free on one card, and no pod is refused for want of it.

    There are more pods than fit; they wait with the scheduler.
    """
    began = time.monotonic()
    with running(cluster, fairlead, resource) as run:
        fits = TOTAL // EQUAL
        for number in range(5):
            again = run.burst([EQUAL] * (fits + 5 if number == 0 else 18), trouble=number % 2 == 0)
            while again:
                again = run.burst(again, trouble=False)
            assert len(run.load.ready) == fits
            if number < 4:
                run.release(0.6)
        run.release(0.2)
        run.load.settle()  # the last of those that waited
        assert run.load.ran == {(EQUAL,): 107}
        assert run.daemon.facts("allocate-refused") == []
        measure("107 equal pods with memory, over restarts", time.monotonic() - began)


def test_pods_of_any_size_in_bursts_over_restarts(cluster: Cluster, fairlead: Make, resource: str, measure: Measure):
    """A pod that the scheduler placed by the sum of the cards is refused if no card has room; another one is made."""
    began = time.monotonic()
    with running(cluster, fairlead, resource) as run:
        wanted = [size for _ in range(10) for size in run.chance.choices(run.chance.sample(SIZES, 3), k=20)][:193]
        expected = Counter((size,) for size in wanted)
        for number in count():
            room = run.room() * 0.8  # the fuller, the more are refused
            fit = sum(1 for all_of_them in accumulate(wanted) if all_of_them <= room)
            wanted = run.burst(wanted[:fit], trouble=number % 3 == 1) + wanted[fit:]
            if not wanted:
                break
            run.release(0.7)
        assert run.load.ran == expected
        measure("193 pods with memory, over restarts", time.monotonic() - began)


def test_a_controller_makes_another_pod_until_a_card_has_room(
    cluster: Cluster, fairlead: Make, resource: str, measure: Measure
):
    """What the scheduler cannot know: six units are free, three on each card. A pod of four comes, and is refused."""
    two = (8 * GIB, 8 * GIB)
    fairlead(config(resource, two)).start()
    cluster.wait_numbers(resource, 16, 16)
    load = Load(cluster, resource, cards(cluster, resource, two))
    load.make("block0", (5,))
    load.make("block1", (5,))
    load.settle()
    began = time.monotonic()
    owners = [Owner(cluster, kind, {resource: 4}) for kind in (REPLICA_SET, JOB)]
    try:
        until(lambda: all(owner.pods("Failed") for owner in owners), "pods are refused", POD_S)
        load.release(["block0"])  # eight units are free on one card: the room of both
        for owner in owners:
            until(partial(owner.pods, "Running"), f"a pod of {owner.name} runs", POD_S)
            measure(f"a pod of a {owner.kind.name} is made and refused → another runs", time.monotonic() - began)
        load.settle()
        failed = [pod["status"] for owner in owners for pod in owner.pods("Failed")]
        assert {status["reason"] for status in failed} == {"UnexpectedAdmissionError"}
        assert all(SEVERAL in status["message"] for status in failed)
    finally:
        for owner in owners:
            owner.remove()


def test_a_new_unit_waits_for_pods_and_comes_when_they_are_gone(
    cluster: Cluster, fairlead: Make, resource: str, measure: Measure
):
    """Under ids that do not say their unit. The kubelet forgets a pod on disk later than on its socket."""

    def cut(unit: str) -> dict[str, Any]:
        made = config(resource, (16 * GIB,))
        made["rules"][0]["memory"] = {"unit": unit, "ids": "card-{index}-{n}"}
        return made

    daemon = fairlead(cut("1GiB"))
    daemon.start()
    cluster.wait_numbers(resource, 16, 16)
    pod = cluster.run_pod("holds", {resource: 12})
    daemon.end()
    daemon.configure(cut("2GiB"))
    began = daemon.start()
    daemon.wait_fact("unit-kept", after=began, resource=resource, from_mib=2048, to_mib=1024)
    cluster.wait_numbers(resource, 16, 16, after=began)
    assert len(cluster.ids(pod)) == 12
    began = time.time()
    cluster.remove_pods()
    cluster.wait_numbers(resource, 8, 16)  # the other ids of before are listed for a minute more
    measure("the last pod with units goes → another unit", time.time() - began)
    env = cluster.run_pod("again", {resource: 8}).env()
    assert env[f"FAIRLEAD_MEMORY_MIB_{resource.upper().translate(str.maketrans('./-', '___'))}"] == str(16 * GIB)

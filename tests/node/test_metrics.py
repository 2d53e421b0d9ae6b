"""Metrics beside the kubelet's own word, while pods come and go: equal at rest, and never impossible in between."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from fairlead.app.web import FRESH_S, HOLDERS_FRESH_S
from fairlead.testing.measure import Looks
from tests.node.cluster import PODS_PATH, Cluster, shape
from tests.node.daemon import HEALTH, Fairlead
from tests.node.living import living
from tests.node.load import SCRIPT
from tests.node.rig.steps import NodeFailedError, until
from tests.node.web import HTTP, Page, Web, web_of

Make = Callable[[dict[str, Any]], Fairlead]
DEVICES, SHARED, REPLICAS = 8, 6, 4  # six are shared by four, two are whole
BURSTS, STAY, SHORT = 5, 9, 3
REST_S = HOLDERS_FRESH_S + FRESH_S  # what a page may be behind the kubelet
MARGIN_S = 5.0  # for a busy machine
SCRAPE_S = 0.2
Holder = tuple[str, str, str]  # namespace, pod, container
Held = Mapping[tuple[str, str], Holder]  # by resource and slot


class Books:
    """What the kubelet says of the resources, and what a page of metrics says of the same."""

    def __init__(self, cluster: Cluster, web: Web, capacity: Mapping[str, int]) -> None:
        self._cluster, self._web, self._capacity = cluster, web, capacity

    def held(self) -> Held:
        """By the kubelet's pod-resources. All pods are in one namespace."""
        return {
            (resource, slot): ("default", pod, container)
            for resource in self._capacity
            for (pod, container), slots in self._cluster.holdings(resource).items()
            for slot in slots
        }

    def wait_equal(self) -> Held:
        """Nothing changed while the page was read, and the page says what the kubelet says."""
        last: list[str] = []

        def equal() -> bool:
            before = self.held()
            page = self._web.metrics()
            quiet = self.held() == before
            last[:] = self.differences(page, before) if quiet else ["pods come and go"]
            return not last

        try:
            until(equal, "metrics say what the kubelet says", REST_S + MARGIN_S, SCRAPE_S)
        except NodeFailedError as error:
            raise NodeFailedError(f"{error}: {last}") from None
        return self.held()

    def differences(self, page: Page, held: Held) -> list[str]:
        found = []
        if (told := told_holders(page)) != held:
            found.append(f"holders: {told.items() ^ held.items()}")
        for resource, capacity in self._capacity.items():
            usable = set(self._cluster.offered(resource))
            mine = {slot for name, slot in held if name == resource}
            states = {"healthy": len(usable), "unhealthy": capacity - len(usable), "retired": 0}
            expected = {f"slots {state}": count for state, count in states.items()}
            expected |= {"held": len(mine), "free": len(usable - mine)}
            if (told_counts := counts(page, resource)) != expected:
                found.append(f"{resource}: {told_counts}, and the kubelet says {expected}")
        return found

    def impossible(self, page: Page) -> list[str]:
        """What no page may say, whenever it is read."""
        found = [f"{name} {labels} is {value}" for name, labels, value in page.samples if value < 0]
        times = Counter((labels["resource"], labels["slot"]) for labels, _ in page.all("fairlead_slot_holder"))
        found += [f"{key} has {count} holders" for key, count in times.items() if count > 1]
        found += [f"{value} slots are held twice" for _, value in page.all("fairlead_slots_held_twice") if value]
        for resource, capacity in self._capacity.items():
            now = counts(page, resource)
            usable, held, free = now["slots healthy"], now["held"], now["free"]
            fits = (
                usable + now["slots unhealthy"] == capacity
                and held == sum(name == resource for name, _ in times)
                and usable - held <= free <= usable
                and held + free <= capacity
            )
            found += [] if fits else [f"{resource}, with {capacity} slots: {now}"]
        return found


def told_holders(page: Page) -> Held:
    """And the device of each, which is in the name of its slot."""
    found = {}
    for labels, value in page.all("fairlead_slot_holder"):
        assert value == 1
        assert labels["slot"].partition("::")[0] == labels["device"]
        found[labels["resource"], labels["slot"]] = (labels["namespace"], labels["pod"], labels["container"])
    return found


def counts(page: Page, resource: str) -> dict[str, float]:
    found = {
        f"slots {labels['state']}": n for labels, n in page.all("fairlead_slots") if labels["resource"] == resource
    }
    for name in ("held", "free"):
        value = page.value(f"fairlead_slots_{name}", resource=resource)
        assert value is not None, "the kubelet was here all the time"
        found[name] = value
    return found


class Scrapes(Looks):
    """Pages read all the time, and what was wrong with each."""

    def __init__(self, web: Web, books: Books) -> None:
        super().__init__(SCRAPE_S, "scrapes")
        self._web, self._books = web, books
        self.pages = 0
        self.wrong: list[str] = []
        self._granted = 0.0

    def look(self) -> None:
        try:
            page = self._web.metrics()
            self.wrong += self._books.impossible(page)
        except (OSError, AssertionError) as error:
            self.wrong.append(repr(error))
            return
        granted = sum(n for labels, n in page.all("fairlead_allocations_total") if labels["result"] == "granted")
        if granted < self._granted:
            self.wrong.append(f"a counter went from {self._granted} to {granted}")
        self._granted = granted
        self.pages += 1


class Crowd:
    """Pods that stay until they are let go, and pods that end by themselves."""

    def __init__(self, cluster: Cluster, shared: str, whole: str) -> None:
        self._cluster, self._shared, self._whole = cluster, shared, whole
        self.staying: list[str] = []
        self._leaving: list[str] = []
        self.calls = 0  # of Allocate: one for each container and resource

    def come(self, burst: int) -> None:
        for number in range(STAY):
            asks = [{self._shared: 1 + number % 2}] + [{self._shared: 1}] * (number % 3 == 0)
            if number == 0:
                asks[0][self._whole] = 1
            self.staying.append(self._start(f"stays-{burst}-{number}", asks, SCRIPT))
        for number in range(SHORT):
            self._leaving.append(self._start(f"short-{burst}-{number}", [{self._shared: 1}], "exit 0"))

    def _start(self, name: str, asks: list[dict[str, int]], script: str) -> str:
        parts = [shape(f"c{number}", each, script) for number, each in enumerate(asks)]
        self._cluster.start_pod(name, {}, containers=parts, restartPolicy="Never", terminationGracePeriodSeconds=20)
        self.calls += sum(map(len, asks))
        return name

    def go(self, names: list[str]) -> None:
        """Every other one is deleted; the others end, and stay as pods that succeeded."""
        pids: dict[str, list[int]] = {}
        for one in living():
            pids.setdefault(one.pod, []).append(one.pid)
        for number, name in enumerate(names):
            self.staying.remove(name)
            self._leaving.append(name)
            if number % 2:
                self._cluster.api.call("DELETE", f"{PODS_PATH}/{name}")
            else:
                for pid in pids[name]:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGTERM)

    def wait_settled(self) -> None:
        last: list[str] = []

        def settled() -> bool:
            found = {one["metadata"]["name"]: one["status"] for one in self._cluster.api.get(PODS_PATH)["items"]}
            refused = {name: status for name, status in found.items() if status.get("phase") == "Failed"}
            assert not refused, refused
            last[:] = [name for name in self.staying if not is_ready(found[name])]
            last.extend(name for name in self._leaving if name in found and found[name].get("phase") != "Succeeded")
            return not last

        try:
            until(settled, "pods have come and gone", 90.0, 0.2)
        except NodeFailedError as error:
            raise NodeFailedError(f"{error}: {last}") from None


def is_ready(status: Any) -> bool:
    return any(one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions", ()))


def test_metrics_say_what_the_kubelet_says_while_pods_come_and_go(cluster: Cluster, fairlead: Make, resource: str):
    shared, whole = f"{resource}-s", f"{resource}-w"
    group = {"count": DEVICES, "id": f"{resource.partition('/')[2]}-{{i}}"}
    match = {"index": list(range(SHARED))}
    config = {
        "backends": [{"kind": "sim", "fleet": {"name": "churn", "devices": [group]}}],
        "rules": [{"resource": shared, "match": match, "replicas": REPLICAS}, {"resource": whole}],
        "health": HEALTH,
        **HTTP,
    }
    capacity = {shared: SHARED * REPLICAS, whole: DEVICES - SHARED}
    daemon = fairlead(config)
    daemon.start()
    for name, count in capacity.items():
        cluster.wait_numbers(name, count, count)
    web = web_of(daemon)
    books, crowd = Books(cluster, web, capacity), Crowd(cluster, shared, whole)
    assert books.wait_equal() == {}
    with Scrapes(web, books) as scrapes:
        for burst in range(BURSTS):
            crowd.come(burst)
            crowd.wait_settled()
            if burst == 1:
                daemon.order("fail", "1", "code=smoke", "kind=needs-reset")
                cluster.wait_numbers(shared, (SHARED - 1) * REPLICAS, SHARED * REPLICAS)
            assert len(books.wait_equal()) > STAY
            # The next burst meets those that go.
            crowd.go(crowd.staying[1:] if burst < BURSTS - 1 else list(crowd.staying))
            if burst == 2:
                daemon.order("recover", "1")
        crowd.wait_settled()
        assert books.wait_equal() == {}
    assert scrapes.wrong == []
    assert scrapes.pages > 10 * BURSTS
    page = web.metrics()
    granted = [page.value("fairlead_allocations_total", resource=name, result="granted") for name in capacity]
    assert sum(value or 0 for value in granted) == crowd.calls
    for name, count in capacity.items():
        assert counts(page, name) == {
            "slots healthy": count,
            "slots unhealthy": 0,
            "slots retired": 0,
            "held": 0,
            "free": count,
        }

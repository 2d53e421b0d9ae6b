"""Amounts without devices, and the cluster client, on a true API server, scheduler and kubelet.

Every feature runs with exactly the rules of the reference, and with each verb missing once.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from fairlead.cluster.access import Access
from fairlead.cluster.client import AnyObject, Client
from fairlead.cluster.errors import Conflict, NotFound, Unauthorized
from fairlead.cluster.kinds import NODES, Kind
from fairlead.cluster.kubeconfig import read_kubeconfig
from fairlead.cluster.nodes import Node
from fairlead.cluster.patches import JsonPatch, MergePatch, drop, json_patch, put
from fairlead.cluster.pods import PodCache
from fairlead.cluster.rbac import FEATURES, Rule
from fairlead.kit.clock import SystemClock
from tests.node.account import Account
from tests.node.cluster import Cluster
from tests.node.daemon import Fairlead, run_node, sim
from tests.node.rig import node, process
from tests.node.rig.api import Api
from tests.node.rig.node import start_kubelet, stop_kubelet
from tests.node.rig.places import BIN, KUBECONFIG, NODE, PLUGINS
from tests.node.rig.steps import until

SHOW, SET, KEEP, DAEMON, CACHE, *_ = FEATURES
CONFIG_MAPS = Kind("", "v1", "configmaps", namespaced=True)
JSON_PATCH = "application/json-patch+json"
Accounts = Callable[[Iterable[Rule]], Account]


@pytest.fixture
def account(cluster: Cluster, tmp_path: Path) -> Iterator[Accounts]:
    made: list[Account] = []

    def make(rules: Iterable[Rule]) -> Account:
        made.append(Account(tmp_path, rules))
        return made[-1]

    yield make
    for one in made:
        one.remove()


@pytest.fixture
def amount(cluster: Cluster, resource: str) -> Iterator[str]:
    """A name for an amount, that is not left on the node."""
    yield resource
    run_node(KUBECONFIG, "unset", "--force", resource)


def allowed(account: Account, *words: str) -> str:
    """The command's answer. The API server needs a moment until it knows a new rule."""
    last: list[tuple[int, str, str]] = []

    def works() -> bool:
        last[:] = [run_node(account.file, *words)]
        return last[0][0] == 0

    until(works, f"fairlead node {' '.join(words)} is allowed: {last}")
    return last[0][1]


def without(rules: Iterable[Rule], lost: Rule, verb: str) -> list[Rule]:
    found = [Rule(r.group, r.resource, tuple(v for v in r.verbs if (r, v) != (lost, verb))) for r in rules]
    return [rule for rule in found if rule.verbs]


def each_verb(feature: str) -> list[Any]:
    return [pytest.param(rule, verb, id=f"{verb}-{rule.resource}") for rule in FEATURES[feature] for verb in rule.verbs]


def amounts_of(*amounts: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**sim("example.com/unused", 4), "rules": [], "amounts": list(amounts), **more}


# --- Amounts ----------------------------------------------------------------------------------------------------------


def test_the_scheduler_counts_what_a_daemon_publishes(
    cluster: Cluster, account: Accounts, fairlead: Callable[[dict[str, Any]], Fairlead], amount: str
):
    """With the rules of the reference and no others. A device that fails takes its share along."""
    where = {"node": NODE, "kubeconfig": str(account(FEATURES[DAEMON]).file)}
    daemon = fairlead(amounts_of({"resource": amount, "perDevice": 100}, cluster=where))
    daemon.start()
    cluster.wait_numbers(amount, 400, 400)
    cluster.run_pod("small", {amount: 300})
    large = cluster.start_pod("large", {amount: 200})

    def refused() -> bool:
        conditions = large.look()["status"].get("conditions", ())
        return any(f"Insufficient {amount}" in one.get("message", "") for one in conditions)

    until(refused, "the scheduler says that there is not enough")
    daemon.order("fail", "unused-1", "xid=79")
    cluster.wait_numbers(amount, 300, 300)
    daemon.end()
    # The kubelet's reports leave alone what it does not know, and so does the end of the daemon.
    after = cluster.heard() + 3
    cluster.wait_numbers(amount, 300, 300, after=after)


def test_a_kubelet_that_wipes_the_amounts_does_not_keep_them_away(
    cluster: Cluster, account: Accounts, fairlead: Callable[[dict[str, Any]], Fairlead], amount: str, tmp_path: Path
):
    """A kubelet that registers its node before there is anything in its plug-in directory sets all of them to 0.

    Whether it does depends on which of its parts is up first, and nobody can choose that: so it is restarted with an
    empty directory, and then the same is written with its own certificate.
    """
    elsewhere = {"directory": str(tmp_path / "plugins"), "podResources": ""}
    where = {"node": NODE, "kubeconfig": str(account(FEATURES[DAEMON]).file)}
    daemon = fairlead(amounts_of({"resource": amount, "total": 7}, cluster=where, kubelet=elsewhere))
    daemon.start()
    cluster.wait_numbers(amount, 7, 7)
    stop_kubelet()
    shutil.rmtree(PLUGINS)
    PLUGINS.mkdir(mode=0o750)
    start_kubelet()
    cluster.wait_numbers(amount, 7, 7, after=cluster.heard() + 2)
    zero = [
        {"op": "add", "path": f"/status/{place}/{amount.replace('/', '~1')}", "value": "0"}
        for place in ("capacity", "allocatable")
    ]
    Api("kubelet").call("PATCH", f"/api/v1/nodes/{NODE}/status", zero, JSON_PATCH)
    daemon.wait_fact("amounts-undone", found=f"{amount}=0")
    cluster.wait_numbers(amount, 7, 7, after=cluster.heard() + 2)


def test_a_kubelet_restart_alone_keeps_the_amounts(cluster: Cluster, amount: str):
    assert run_node(KUBECONFIG, "set", f"{amount}=5")[0] == 0
    stop_kubelet()
    start_kubelet()
    cluster.wait_numbers(amount, 5, 5, after=cluster.heard() + 2)


def test_a_node_that_is_made_anew_gets_its_amounts_again(
    cluster: Cluster, account: Accounts, fairlead: Callable[[dict[str, Any]], Fairlead], amount: str
):
    where = {"node": NODE, "kubeconfig": str(account(FEATURES[DAEMON]).file)}
    daemon = fairlead(amounts_of({"resource": amount, "total": 7}, cluster=where))
    daemon.start()
    cluster.wait_numbers(amount, 7, 7)
    stop_kubelet()
    cluster.api.call("DELETE", f"/api/v1/nodes/{NODE}")
    start_kubelet()
    cluster.wait_numbers(amount, 7, 7)
    # As it was, for the tests that follow.
    until(lambda: not cluster.api.get(f"/api/v1/nodes/{NODE}")["spec"].get("taints"), "pods may come again", 60.0)


def test_the_kubelet_makes_allocatable_of_a_capacity_that_it_does_not_know(cluster: Cluster, amount: str):
    """The kubelet's own way, without Fairlead: what the guide says of it."""
    escaped = amount.replace("/", "~1")
    path = f"/api/v1/nodes/{NODE}/status"
    op = {"op": "add", "path": f"/status/capacity/{escaped}", "value": "5"}
    cluster.api.call("PATCH", path, [op], JSON_PATCH)
    cluster.wait_numbers(amount, 5, 5)
    # Less of it allocatable than there is: the kubelet sees to it that this does not last.
    lower = {"op": "replace", "path": f"/status/allocatable/{escaped}", "value": "3"}
    cluster.api.call("PATCH", path, [lower], JSON_PATCH)
    cluster.wait_numbers(amount, 5, 5, after=cluster.heard() + 2)
    cluster.api.call("PATCH", path, [{"op": "remove", "path": f"/status/capacity/{escaped}"}], JSON_PATCH)
    status = f"/api/v1/nodes/{NODE}"
    until(lambda: amount not in cluster.api.get(status)["status"]["allocatable"], "allocatable follows")


def test_the_commands_change_their_own_amounts_only(cluster: Cluster, amount: str):
    before = cluster.api.get(f"/api/v1/nodes/{NODE}")
    code, out, _ = run_node(KUBECONFIG, "set", f"{amount}=1k")
    assert code == 0
    assert f"{amount}" in out
    status = cluster.api.get(f"/api/v1/nodes/{NODE}")["status"]
    assert (status["capacity"][amount], status["allocatable"][amount]) == ("1k", "1k")
    assert run_node(KUBECONFIG, "unset", amount)[0] == 0
    after = cluster.api.get(f"/api/v1/nodes/{NODE}")
    assert after["status"]["capacity"] == before["status"]["capacity"]
    assert after["metadata"]["annotations"] == before["metadata"]["annotations"]


# --- RBAC -------------------------------------------------------------------------------------------------------------


def test_the_commands_need_the_rules_of_the_reference_and_no_more(cluster: Cluster, account: Accounts, amount: str):
    seer, setter = account(FEATURES[SHOW]), account(FEATURES[SET])
    allowed(seer, "show")
    assert amount in allowed(setter, "set", f"{amount}=5")
    code, _, err = run_node(seer.file, "unset", amount)
    assert code == 6
    assert f"system:serviceaccount:default:{seer.name} may not patch nodes/status" in err
    assert amount not in allowed(setter, "unset", amount)


@pytest.mark.parametrize(("lost", "verb"), each_verb(SET))
def test_a_command_without_a_rule_names_it(account: Accounts, amount: str, lost: Rule, verb: str):
    who = account(without(FEATURES[SET], lost, verb))
    if verb != "get":
        allowed(who, "show")  # the rules that are left have arrived
    code, _, err = run_node(who.file, "set", f"{amount}=5")
    assert code == 6
    assert "\n".join(line.removeprefix("fairlead: ") for line in err.splitlines()[1:]) == str(
        Rule(lost.group, lost.resource, (verb,))
    )
    assert who.token not in err


@pytest.mark.parametrize(("lost", "verb"), each_verb(DAEMON))
def test_a_daemon_without_a_rule_names_it_and_goes_on_when_it_comes(
    cluster: Cluster,
    account: Accounts,
    fairlead: Callable[[dict[str, Any]], Fairlead],
    amount: str,
    lost: Rule,
    verb: str,
):
    who = account(without(FEATURES[DAEMON], lost, verb))
    where = {"node": NODE, "kubeconfig": str(who.file)}
    daemon = fairlead(amounts_of({"resource": amount, "total": 7}, cluster=where))
    daemon.start()
    rule = str(Rule(lost.group, lost.resource, (verb,)))
    until(lambda: any(rule in fact["reason"] for fact in daemon.facts("problem", topic="amounts")), f"it says {rule}")
    assert not any(who.token in str(fact) for fact in daemon.facts())
    who.allow(FEATURES[DAEMON])
    cluster.wait_numbers(amount, 7, 7)


def test_keeping_needs_the_rules_of_the_reference(cluster: Cluster, account: Accounts, amount: str):
    who = account(FEATURES[KEEP])
    allowed(who, "show")
    env = {**os.environ, "KUBECONFIG": str(who.file), "NODE_NAME": NODE}
    words = [sys.executable, "-m", "fairlead", "node", "set", "--keep", f"{amount}=5"]
    keeper = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)
    try:
        cluster.wait_numbers(amount, 5, 5)
        op = {"op": "add", "path": f"/status/capacity/{amount.replace('/', '~1')}", "value": "0"}
        cluster.api.call("PATCH", f"/api/v1/nodes/{NODE}/status", [op], JSON_PATCH)
        cluster.wait_numbers(amount, 5, 5, after=cluster.heard() + 2)
    finally:
        keeper.terminate()
        keeper.wait(10)


# --- The client -------------------------------------------------------------------------------------------------------


def _access(file: Path) -> Access:
    return read_kubeconfig(str(file), "", {}, SystemClock())


async def test_the_client_pages_watches_patches_creates_and_deletes(cluster: Cluster, resource: str):
    client = Client(_access(KUBECONFIG), SystemClock())
    name = resource.partition("/")[2]
    kept: Any = {"namespace": "default", "labels": f"test={name}"}
    bodies = [
        {"metadata": {"name": f"{name}-{number}", "labels": {"test": name}}, "data": {"a": "1"}} for number in range(3)
    ]
    for body in bodies:
        await client.create(CONFIG_MAPS, body, AnyObject, namespace="default")
    with pytest.raises(Conflict):
        await client.create(CONFIG_MAPS, bodies[0], AnyObject, namespace="default")
    listing = await client.list(CONFIG_MAPS, AnyObject, page=1, **kept)
    assert [one.metadata.name for one in listing.items] == [f"{name}-{number}" for number in range(3)]

    first = f"{name}-0"
    patches: list[JsonPatch | MergePatch] = [
        json_patch([put("2", "data", "b"), drop("data", "a")]),
        MergePatch({"data": {"c": "3"}}),
    ]
    for patch in patches:
        await client.patch(CONFIG_MAPS, first, patch, AnyObject, namespace="default")
    async with aclosing(client.watch(CONFIG_MAPS, AnyObject, since=listing.version, **kept)) as events:
        async with asyncio.timeout(30):
            seen = [await anext(events) for _ in patches]
            await client.delete(CONFIG_MAPS, first, namespace="default")
            seen.append(await anext(events))
    assert [event.kind for event in seen] == ["MODIFIED"] * 2 + ["DELETED"]
    for number in (1, 2):
        await client.delete(CONFIG_MAPS, f"{name}-{number}", namespace="default")
    with pytest.raises(NotFound):
        await client.get(CONFIG_MAPS, first, AnyObject, namespace="default")
    await client.close()


async def test_wrong_credentials_are_unauthorized(cluster: Cluster, account: Accounts):
    who = account(FEATURES[SHOW])
    who.file.write_text(who.file.read_text().replace(who.token, "no-token"))
    client = Client(_access(who.file), SystemClock())
    with pytest.raises(Unauthorized):
        await client.get(NODES, NODE, Node)
    await client.close()


@pytest.mark.parametrize(("lost", "verb"), [pytest.param(None, "", id="none"), *each_verb(CACHE)])
async def test_the_pod_cache_needs_the_rules_of_the_reference(
    cluster: Cluster, account: Accounts, lost: Rule | None, verb: str
):
    rules = FEATURES[CACHE]
    who = account(without(rules, lost, verb) if lost else rules)
    client = Client(_access(who.file), SystemClock())
    cache = PodCache(client, NODE)
    task = asyncio.create_task(cache.run())
    try:
        if lost is not None:
            rule = str(Rule(lost.group, lost.resource, (verb,)))
            assert await cache.wait_for(lambda now: rule in now.problem or None, 30.0)
            return
        await cache.wait_for(lambda now: now.complete or None, 30.0)
        pod = cluster.start_pod("seen", {})
        found = await cache.wait_for(
            lambda now: next((one for one in now.pods.values() if one.name == "seen"), None), 30.0
        )
        assert (found.node, found.namespace, found.containers[0].name) == (NODE, "default", "main")
        await cache.wait_for(lambda now: now.pods[found.uid].phase == "Running" or None, 60.0)
        pod.delete()
        await cache.wait_for(lambda now: found.uid not in now.pods or None, 30.0)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await client.close()


async def test_the_pod_cache_survives_a_restart_of_the_api_server(cluster: Cluster):
    client = Client(_access(KUBECONFIG), SystemClock())
    cache = PodCache(client, NODE)
    task = asyncio.create_task(cache.run())
    try:
        await cache.wait_for(lambda now: now.complete or None, 30.0)
        await asyncio.to_thread(process.end, "kube-apiserver")
        assert await cache.wait_for(lambda now: now.problem or None, 30.0)
        node._apiserver((BIN / "kube-apiserver").resolve())
        await asyncio.to_thread(until, node._healthy, "the API is ready", 60.0)
        await cache.wait_for(lambda now: not now.problem or None, 60.0)
        await asyncio.to_thread(cluster.start_pod, "after", {})
        found = await cache.wait_for(
            lambda now: next((one for one in now.pods.values() if one.name == "after"), None), 30.0
        )
        assert found.node == NODE
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await client.close()

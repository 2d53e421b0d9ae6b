"""Whatever pods say: the cache keeps this node's living ones, the newest of each, and never falls over."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.apiserver.server import ApiServer
from tests.clock import FakeClock

from fairlead.cluster.access import Access, parse_server
from fairlead.cluster.client import Client
from fairlead.cluster.objects import PodObject
from fairlead.cluster.patches import MergePatch
from fairlead.cluster.pods import PodCache
from fairlead.cluster.reflector import is_older
from fairlead.model.pod import Pod

KEPT = "keep/"

# What the API server lets through: names are checked, the rest is anybody's text. Go writes each as JSON.
texts = st.one_of(st.text(max_size=20), st.sampled_from(["\x00", "\x1b[2J", "\n", "\u2028", "😀", "x" * 20_000]))
keys = st.sampled_from([f"{KEPT}a", f"{KEPT}b", "other", KEPT, "kubectl.kubernetes.io/last-applied-configuration"])
some = st.none() | st.dictionaries(keys, texts, max_size=3)
quantities = st.sampled_from(["1", "0", "-1", "1e3", "9" * 60, "1e999", "4Gi", "0.5", "", "NaN", "-9E", "1500m"])
amounts = st.none() | st.dictionaries(st.sampled_from(["example.com/gpu", "cpu"]), quantities, max_size=2)
containers = st.none() | st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from(["a", "b"])},
        optional={
            "resources": st.fixed_dictionaries({}, optional={"limits": amounts, "requests": amounts}),
            "restartPolicy": st.sampled_from(["Always", "Never"]),
            "image": texts,
        },
    ),
    max_size=3,
)
times = st.sampled_from([None, "0001-01-01T00:00:00Z", "2026-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])
versions = st.one_of(st.integers(1, 40).map(str), st.sampled_from(["", "x", "007", "9" * 5000, "٣"]))


@st.composite
def objects(draw: st.DrawFn) -> dict[str, Any]:
    number = draw(st.integers(0, 4))
    meta = {
        "name": f"p{number}",
        "namespace": "default",
        "uid": f"uid-{number}",
        "resourceVersion": draw(versions),
        "creationTimestamp": draw(times),
        "deletionTimestamp": draw(times),
        "annotations": draw(some),
        "labels": draw(some),
        "managedFields": [{"manager": draw(texts)}],
    }
    spec = {"nodeName": draw(st.sampled_from(["n1", "n2"])), "containers": draw(containers)}
    phase = draw(st.sampled_from(["Pending", "Running", "Succeeded", "Failed", "Unknown", ""]))
    return {"metadata": meta, "spec": spec | {"initContainers": draw(containers)}, "status": {"phase": phase}}


happenings = st.lists(
    st.one_of(
        st.tuples(st.just("put"), objects()),
        st.tuples(st.just("drop"), objects()),
        st.tuples(st.just("replace"), st.lists(objects(), max_size=5)),
    ),
    max_size=8,
)


def decode(thing: Mapping[str, Any]) -> Any:
    return msgspec.json.decode(json.dumps(thing), type=PodObject)


def fresh() -> PodCache:
    client = Client(Access(parse_server("http://127.0.0.1:1")), FakeClock())
    return PodCache(client, "n1", keeps=lambda key: key.startswith(KEPT))


def is_here(thing: Mapping[str, Any]) -> bool:
    return thing["spec"]["nodeName"] == "n1" and thing["status"]["phase"] not in {"Succeeded", "Failed"}


def check(pod: Pod, thing: Mapping[str, Any]) -> None:
    meta, spec = thing["metadata"], thing["spec"]
    assert (pod.uid, pod.name, pod.version) == (meta["uid"], meta["name"], meta["resourceVersion"])
    assert pod.deleting == (meta["deletionTimestamp"] is not None)
    for kept, said in ((pod.annotations, meta["annotations"]), (pod.labels, meta["labels"])):
        assert kept == {key: text for key, text in (said or {}).items() if key.startswith(KEPT)}
    for kept_ones, said_ones in ((pod.containers, "containers"), (pod.init_containers, "initContainers")):
        for one, said in zip(kept_ones, spec[said_ones] or (), strict=True):
            assert one.limits == (said.get("resources", {}).get("limits") or {})
            assert one.sidecar == (said.get("restartPolicy") == "Always")


@settings(deadline=None, max_examples=150)
@given(happenings)
def test_the_cache_holds_the_newest_of_every_living_pod_of_this_node(story: list[tuple[str, Any]]):
    cache = fresh()
    model: dict[str, Mapping[str, Any]] = {}

    def take(thing: Mapping[str, Any]) -> None:
        uid = thing["metadata"]["uid"]
        if is_here(thing):
            model[uid] = thing
        else:
            model.pop(uid, None)

    for kind, what in story:
        if kind == "replace":
            cache.replace(tuple(map(decode, what)))
            model.clear()
            for thing in what:
                if is_here(thing):
                    model[thing["metadata"]["uid"]] = thing
            assert cache.now.complete
        elif kind == "drop":
            cache.drop(decode(what))
            model.pop(what["metadata"]["uid"], None)
        else:
            cache.put(decode(what))
            known = model.get(what["metadata"]["uid"], {"metadata": {"resourceVersion": ""}})
            if not is_older(what["metadata"]["resourceVersion"], known["metadata"]["resourceVersion"]):
                take(what)
        assert cache.now.pods.keys() == model.keys()
    for uid, pod in cache.now.pods.items():
        check(pod, model[uid])


@settings(deadline=None, max_examples=60)
@given(objects())
def test_what_nobody_reads_costs_nothing(thing: dict[str, Any]):
    thing["spec"]["nodeName"], thing["status"]["phase"] = "n1", "Pending"
    cache = fresh()
    cache.put(decode(thing))
    (pod,) = cache.now.pods.values()
    said = [text for some in (pod.annotations, pod.labels) for text in some.values()]
    assert len(msgspec.json.encode(pod)) < 8000 + 6 * sum(map(len, said)) + len(pod.version)


@given(st.integers(0, 10**30), st.integers(0, 10**30), st.integers(0, 3))
def test_versions_are_compared_as_numbers(one: int, other: int, zeros: int):
    assert is_older("0" * zeros + str(one), str(other)) == (one < other)


def test_a_version_that_python_would_not_read_is_compared_all_the_same():
    assert is_older("1", "9" * 5000)
    assert not is_older("9" * 5000, "1")
    assert not any(is_older(one, "5") or is_older("5", one) for one in ("", "x", "-1", "1.0", "\u0663", "\u00b2"))


# --- Answers to our own patches ---------------------------------------------------------------------------------------

PATCH = MergePatch({"metadata": {"annotations": {"keep/a": "1"}}})


async def test_a_change_of_our_own_is_known_at_once(server: ApiServer, client: Client):
    cache = PodCache(client, "n1")
    cache.put(decode(server.store.put("pods", living("a"), "default")))
    await cache.annotate(cache.now.pods["uid-a"], PATCH)
    assert cache.now.pods["uid-a"].annotations == {"keep/a": "1"}


async def test_an_answer_that_comes_after_the_end_of_its_pod_brings_nobody_back(server: ApiServer, client: Client):
    cache = PodCache(client, "n1")
    thing = decode(server.store.put("pods", living("a"), "default"))
    cache.put(thing)
    pod = cache.now.pods["uid-a"]
    cache.drop(thing)
    await cache.annotate(pod, PATCH)
    assert not cache.now.pods


def living(name: str) -> dict[str, Any]:
    spec = {"nodeName": "n1", "containers": [{"name": "a"}]}
    return {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": spec, "status": {"phase": "Pending"}}

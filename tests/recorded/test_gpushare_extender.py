"""Every recording of gpushare's extender, asked of ours: the same answer, or a difference that is meant."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlead.kit.clock import SystemClock
from fairlead.policy.packing.packing import Origin
from fairlead.scheduler.http.server import Server
from fairlead.scheduler.routes import routes
from tests.apiserver.server import ApiServer, Fault, api_server
from tests.recorded.differences_extender import DIFFERENCES
from tests.unit.scheduler.rig import Rig, placed, running
from tests.vectors.gpushare_extender import Extension, extensions

CASES = extensions()
GUIDE = Path(__file__).parents[2] / "docs/guide/scheduler.md"
# Of each recording the steps that are answered otherwise, and which difference that is. "end": the pods at the end.
OTHERWISE: dict[str, dict[int | str, set[str]]] = {
    "008-filter-bad-json": {5: {"any-spelling"}},
    "009-filter-count-zero": {0: {"not-offered"}},
    "010-filter-mem-zero": {1: {"asks-for-nothing"}},
    "011-filter-integer-division": {2: {"total-of-devices"}},
    **{
        name: {0: {"bind-status"}}
        for name in ("024-bind-unknown-node", "025-bind-unknown-pod", "026-bind-wrong-uid", "031-bind-zero-request")
    },
    "029-bind-patch-403": {0: {"one-write"}, 1: {"one-write"}, "end": {"one-write"}},
    "030-bind-binding-fails": {0: {"bind-status"}, "end": {"one-write"}},
    "032-bind-twice": {1: {"bound-once"}, 2: {"bound-once"}, "end": {"bound-once"}},
    "034-bind-fills-up": {4: {"bind-status"}},
    "040-start-with-pods": {0: {"limit-counts", "deleting-counts"}, 1: {"deleting-counts"}},
    "041-overused-underflow": {
        0: {"limit-counts"},
        1: {"never-wraps"},
        2: {"never-wraps"},
        3: {"never-wraps"},
        "end": {"never-wraps"},
    },
    "044-pod-appears": {0: {"all-nodes"}},
    "045-pod-index-changes": {2: {"follows-changes"}},
    "048-node-removed": {3: {"all-nodes"}},
    "052-unhealthy-bad-token": {"end": {"unhealthy-words"}},
    "054-unhealthy-empty": {"end": {"unhealthy-words"}},
    "060-inspect-empty": {0: {"all-nodes"}, 2: {"all-nodes"}, 3: {"all-nodes"}},
    "064-inspect-used-vs-limit": {0: {"limit-counts"}},
}
ALWAYS = {"names-only", "best-first", "reason-with-figures", "other-errors"}  # of answers that are compared without it


async def play(case: Extension) -> tuple[list[Any], dict[str, Any]]:
    """Our answers, step by step, and the pods at the end."""
    async with api_server() as server:
        for plural, things in (("nodes", case.objects.nodes), ("configmaps", case.objects.configmaps)):
            for thing in things:
                server.store.put(plural, thing, thing["metadata"].get("namespace", ""))
        for thing in case.objects.pods:
            server.store.put("pods", thing, thing["metadata"]["namespace"])
        async with running(server) as rig:
            await rig.until(lambda: rig.extender.feed.maps is not None and rig.extender.feed.maps.complete)
            for one in case.script:
                server.faults.append(Fault(one["status"], one["message"], methods=one["method"], path=one["path"]))
            http = Server(routes(rig.extender), SystemClock())
            port = int(http.listen("127.0.0.1:0").rpartition(":")[2])
            answers: list[Any] = []
            for step in case.steps:
                if "api_change" in step:
                    await change(rig, server, step["api_change"])
                    answers.append(None)
                else:
                    answers.append(await ask(port, step))
                    # What a filter keeps for its bind is not kept by theirs: the next step finds the node as it was.
                    for uid in [one.uid for packing in rig.view.packings for one in packing.on("n1")]:
                        rig.view.release(uid, min(Origin))
            await http.close(1.0)
        pods = {
            f"{where}/{name}": {
                "annotations": thing["metadata"].get("annotations") or {},
                "nodeName": thing["spec"].get("nodeName"),
            }
            for (plural, where, name), thing in server.store.objects.items()
            if plural == "pods"
        }
    return answers, pods


async def ask(port: int, step: Any) -> dict[str, Any]:
    body = step.get("body")
    raw = body["raw"] if isinstance(body, dict) and "raw" in body else json.dumps(body) if body is not None else ""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"{step['method']} {step['path']} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    writer.write(f"{head}Content-Length: {len(raw.encode())}\r\n\r\n{raw}".encode())
    answer = await reader.read()
    writer.close()
    first, _, content = answer.partition(b"\r\n\r\n")
    return {"status": int(first.split()[1]), "reply": json.loads(content)}


async def change(rig: Rig, server: ApiServer, text: str) -> None:
    """What the recorder did to its API server, and until ours has seen it."""
    seen = rig.view.packings[0].nodes
    if found := re.fullmatch(r"pod (\w+) deleted", text):
        server.store.remove("pods", found[1], "default")
        await rig.until(lambda: f"uid-{found[1]}" not in set(rig.view.pods()))
    elif found := re.fullmatch(r"pod (\w+) added with index (\d+) amount (\d+) on (\w+)", text):
        await rig.seen(placed(found[1], int(found[3]), found[4], int(found[2])))
    elif found := re.fullmatch(r"pod (\w+) index \d+ -> (\d+)", text):
        thing = json.loads(json.dumps(server.store.get("pods", found[1], "default")))
        thing["metadata"]["annotations"]["ALIYUN_COM_GPU_MEM_IDX"] = found[2]
        server.store.put("pods", thing, "default")
        await rig.until(lambda: seen["n1"].used[int(found[2])] > 0)
    elif found := re.fullmatch(r"(\w+) capacity gpu-mem (\d+) gpu-count (\d+)", text):
        thing = json.loads(json.dumps(server.store.get("nodes", found[1])))
        amounts = {"aliyun.com/gpu-mem": found[2], "aliyun.com/gpu-count": found[3]}
        thing["status"] = {"capacity": amounts, "allocatable": amounts}
        server.store.put("nodes", thing)
        await rig.until(lambda: found[1] in seen and bool(seen[found[1]].devices))
    elif found := re.fullmatch(r"configmap (\S+) gpus=(\S+) added", text):
        thing = {"metadata": {"name": found[1]}, "data": {"gpus": found[2]}}
        server.store.put("configmaps", thing, "kube-system")
        await rig.until(lambda: bool(rig.view.unhealthy_nodes()))
    elif found := re.fullmatch(r"(\w+) deleted", text):
        server.store.remove("nodes", found[1])
        await rig.until(lambda: found[1] not in rig.view.node_names())
    else:
        raise AssertionError(f"unknown change: {text}")


def differing(step: Any, ours: Any) -> Iterator[str]:
    """What is different, by the kind of question."""
    theirs, status, reply = step["reply"], ours["status"], ours["reply"]
    if step["path"].endswith("/filter"):
        yield from _filters(step, theirs, reply)
    elif step["path"].endswith("/bind"):
        if bool(theirs["Error"]) != bool(reply["Error"]):
            yield f"bind: {theirs['Error']!r:.80}, ours {reply['Error']!r:.80}"
        if step["status"] != status:
            yield f"status {step['status']}, ours {status}"
    else:
        yield from _inspections(theirs, reply)


def _filters(step: Any, theirs: Any, ours: Any) -> Iterator[str]:
    if bool(theirs["Error"]) != bool(ours["Error"]):
        yield f"error {theirs['Error']!r}, ours {ours['Error']!r}"
    if sorted(theirs["NodeNames"] or ()) != sorted(ours["NodeNames"] or ()):
        yield f"nodes {theirs['NodeNames']}, ours {ours['NodeNames']}"
    if not theirs["NodeNames"] and not theirs["Error"]:
        words = {**(ours["FailedNodes"] or {}), **(ours["FailedAndUnresolvableNodes"] or {})}
        for name, text in (theirs["FailedNodes"] or {}).items():
            if not words.get(name, "").startswith(text):
                yield f"reason of {name}: {text!r}, ours {words.get(name)!r}"
    if isinstance(step["body"], dict) and step["body"].get("Nodes") and theirs["Nodes"]:
        wanted = sorted(one["metadata"]["name"] for one in theirs["Nodes"]["items"] or ())
        if wanted != sorted(one["metadata"]["name"] for one in (ours["Nodes"] or {}).get("items") or ()):
            yield "node objects"


def _inspections(theirs: Any, ours: Any) -> Iterator[str]:
    mine = {one["name"]: one for one in ours.get("nodes", ())}
    if sorted(mine) != sorted(one["name"] for one in theirs["nodes"]):
        yield f"nodes {[one['name'] for one in theirs['nodes']]}, ours {sorted(mine)}"
    for one in theirs["nodes"]:
        other = mine.get(one["name"], one)
        for key in ("totalGPU", "usedGPU", "devs"):
            if one[key] != other[key]:
                yield f"{one['name']} {key}: {one[key]}, ours {other[key]}"


def ends(case: Extension, pods: dict[str, Any]) -> Iterator[str]:
    for name, theirs in case.final_pods.items():
        ours = pods.get(name, {})
        written = dict(ours.get("annotations", {}))
        if "ALIYUN_COM_GPU_MEM_ASSUME_TIME" in written:
            written["ALIYUN_COM_GPU_MEM_ASSUME_TIME"] = "<NOW_NS>"
        written.pop("scheduler.fairlead/woken", None)
        if (theirs["nodeName"], theirs["annotations"]) != (ours.get("nodeName"), written):
            yield f"pod {name}: {theirs}, ours {ours.get('nodeName')} {written}"


@pytest.mark.parametrize("name", CASES)
async def test_ours_answers_the_same_or_what_is_meant(name: str):
    answers, pods = await play(CASES[name])
    found: dict[int | str, list[str]] = {}
    for number, (step, ours) in enumerate(zip(CASES[name].steps, answers, strict=True)):
        if ours is not None and (texts := list(differing(step, ours))):
            found[number] = texts
    if texts := list(ends(CASES[name], pods)):
        found["end"] = texts
    assert found.keys() == OTHERWISE.get(name, {}).keys(), found


def test_every_difference_is_used():
    assert {word for steps in OTHERWISE.values() for words in steps.values() for word in words} | ALWAYS == set(
        DIFFERENCES
    )


def test_the_guide_has_every_difference():
    told = dict(re.findall(r"^\| `([\w-]+)` \| (.*) \|$", GUIDE.read_text(), re.MULTILINE))
    assert {name: told.get(name) for name in DIFFERENCES} == DIFFERENCES

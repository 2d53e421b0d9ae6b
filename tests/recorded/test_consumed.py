"""Every key of the recordings of amd, gke and generic is read by what plays them, or it is named here with a reason.

A few recordings that have every key among them are played from copies that remember what is read.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from random import Random
from typing import Any

import pytest

from fairlead.backends.nvidia import library
from fairlead.backends.nvidia.nvml import Nvml
from fairlead.cluster.access import Access, parse_server
from fairlead.cluster.client import Client
from fairlead.kit.clock import SystemClock
from tests.apiserver.server import api_server
from tests.recorded import amd, amd_labels, generic, gke_play
from tests.recorded.amd_allocator import play_allocator, recorded_allocator
from tests.recorded.differences_gke import DIFFERENCES as GKE_DIFFERENCES
from tests.recorded.gke_stage import staged
from tests.recorded.outcome import judge, meant
from tests.recorded.watched import Ways, cover, watched
from tests.vectors.amd import ALLOCATOR
from tests.vectors.amd import amd as amd_cases
from tests.vectors.gke import gke
from tests.vectors.read import HERE, lines

Reasons = dict[str, str]  # by key; the keys below it too
ABOUT: Reasons = {"case": "its name", "about": "what it is, in words", "peer": "the program's name"}
ERRORS = "the words of an error are each program's own; that it is one is compared"
WHOLE = "theirs writes the whole node; its labels are compared. See the difference patch"
WRITTEN = "how a request is written; what came of it is compared. See the difference patches"
STREAM = "what the recorder's client said of a connection that was closed"

AMD = Ways(r"outputs\.resources", r".*\.streams", r".*\.pair_weights(\.\*)?")
AMD_APART: Reasons = ABOUT | {
    "inputs.kubelet_started_1.5s_late": "never, in these",
    "outputs.resources.*.answers[].error": ERRORS,
    "outputs.steps[].streams": STREAM,
}
ALLOCATOR_APART: Reasons = ABOUT | {
    "inputs.package": "the Go package that was called",
    "inputs.devices[].Card": "0: the allocator does not look at it",
    "inputs.devices[].RenderD": "0: the allocator does not look at it",
    "inputs.devices[].NumaNode": "KFD's links say how near two devices are",
    "inputs.devices[].ComputePartitionType": "empty: the allocator does not look at it",
    "inputs.devices[].MemoryPartitionType": "empty: the allocator does not look at it",
}
GKE = Ways(r".*\.envs", r".*annotations", r"inputs\.(env|pci_numa_node)", r"inputs\.mig_capabilities(\.\*)?")
GKE_APART: Reasons = ABOUT | {
    "outputs.answers[].api_requests[].body._protobuf": WRITTEN,
    "outputs.answers[].api_requests[].body.metadata": "names with a random end, and versions of the recorder's server",
    "outputs.answers[].api_requests[].content_type": WRITTEN,
    "outputs.answers[].api_requests[].method": WRITTEN,
    "outputs.answers[].api_requests[].status": WRITTEN,
    "outputs.answers[].api_requests[].reply": "the recorder's server lost an Event; see the difference event-count",
    "outputs.answers[].api_requests[].body.count": "see the difference event-count",
    "outputs.answers[].api_requests[].body.lastTimestamp": "see the difference event-count",
    "outputs.answers[].error": ERRORS,
    "outputs.answers[].stream": STREAM,
    "outputs.api_requests[].body": "those of the answers again, and what is applied",
    "outputs.api_requests[].method": WRITTEN,
    "outputs.api_requests[].status": WRITTEN,
}
GENERIC = Ways(
    r"outputs\.resources", r".*allocate_each", r"inputs\.sys_bus_usb_devices", r".*\[\]\.(counts|ids_seen|lists_sent)"
)
GENERIC_APART: Reasons = ABOUT | {
    "inputs.usb_dir_present": "always, in these",
    "outputs.resources.*.answers[].error": ERRORS,
    "outputs.resources.*.list_error": ERRORS,
    "outputs.steps[].streams": STREAM,
}
LABELS = Ways(r".*\.labels(_after)?", r".*node_labels_before", r"inputs\.(env|libdrm)")
LABELS_APART: Reasons = ABOUT | {
    "inputs.libdrm.*.family": "ours asks no libdrm: see the difference family",
    "outputs.steps": "test_labels_that_are_wiped_come_back reads it",
    "outputs.writes[].body._protobuf": WHOLE,
    "outputs.writes[].body.apiVersion": WHOLE,
    "outputs.writes[].body.kind": WHOLE,
    "outputs.writes[].body.metadata": WHOLE,
    "outputs.writes[].body.status": WHOLE,
    "outputs.writes[].content_type": WHOLE,
    "outputs.writes[].status": WHOLE,
}


def check(folder: str, ways: Ways, names: list[str], seen: set[str], reasons: Reasons) -> None:
    recordings = {one["case"]: one for one in lines(HERE / folder / "cases.jsonl.gz", dict[str, Any])}
    unread = set().union(*(ways.of(recordings[name]) for name in names)) - seen
    apart = {key: {one for one in unread if one == key or one.startswith((f"{key}.", f"{key}["))} for key in reasons}
    left = sorted(unread - set().union(*apart.values()))
    assert not left, "no test reads these keys:\n" + "\n".join(left)
    assert not [key for key, keys in apart.items() if not keys], "these keys are read"


def chosen(folder: str, ways: Ways, among: Collection[str]) -> list[str]:
    found = {one["case"]: one for one in lines(HERE / folder / "cases.jsonl.gz", dict[str, Any])}
    keys = {name: ways.of(one) for name, one in found.items() if name in among}
    return cover(keys, {name: len(str(found[name])) for name in keys})


async def test_of_amds_plugin(kubelet_root: Path):
    seen: set[str] = set()
    names = chosen("amd", AMD, amd_cases().keys() - {ALLOCATOR})
    for number, name in enumerate(names):
        (kubelet_root / str(number)).mkdir()
        case = watched(amd_cases()[name], AMD, seen)
        judge({}, name, amd.recorded(case), await amd.play(case, kubelet_root / str(number)))
    check("amd", AMD, names, seen, AMD_APART)


async def test_of_amds_allocator(tmp_path: Path):
    seen: set[str] = set()
    case = watched(amd_cases()[ALLOCATOR], AMD, seen)
    judge({}, ALLOCATOR, recorded_allocator(case), await play_allocator(case, tmp_path))
    check("amd", AMD, [ALLOCATOR], seen, ALLOCATOR_APART)


async def test_of_gkes_plugin(kubelet_root: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(library, "load", lambda _root: Nvml(library.NAME))
    seen: set[str] = set()
    names = chosen("gke", GKE, gke())
    for number, name in enumerate(names):
        (kubelet_root / str(number)).mkdir()
        case = watched(gke()[name], GKE, seen)
        told = {where: value for where, (_, value) in meant(GKE_DIFFERENCES, name).items()}
        async with staged(case, kubelet_root / str(number)) as stage:
            theirs = gke_play.recorded(case)
            judge({}, name, theirs, await gke_play.play(case, stage, theirs | told, monkeypatch))
    check("gke", GKE, names, seen, GKE_APART)


async def test_of_squats_plugin(kubelet_root: Path, monkeypatch: pytest.MonkeyPatch):
    seen: set[str] = set()
    names = chosen("generic", GENERIC, generic.SERVED)
    for number, name in enumerate(names):
        (kubelet_root / str(number)).mkdir()
        case = watched(generic.CASES[name], GENERIC, seen)
        judge({}, name, generic.theirs(case), await generic.served(case, kubelet_root / str(number), monkeypatch))
    check("generic", GENERIC, names, seen, GENERIC_APART)


async def test_of_amds_labeller(tmp_path: Path):
    seen: set[str] = set()
    names = chosen("amd-labels", LABELS, amd_labels.CASES)
    for name in names:
        case = watched(amd_labels.CASES[name], LABELS, seen)
        async with api_server() as server:
            client = Client(Access(parse_server(server.url)), SystemClock(), rng=Random(1))
            judge({}, name, amd_labels.recorded(case), await amd_labels.play(case, server, client, tmp_path / name))
            await client.close()
    check("amd-labels", LABELS, names, seen, LABELS_APART)

"""Where labels go: a file, a NodeFeature object, the node; and what is stale goes."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.apiserver.server import ApiServer, Fault
from tests.apiserver.updates import UpdatingServer, updating_server
from tests.vectors import gfd

from fairlead.cluster.access import Access, parse_server
from fairlead.cluster.client import Client
from fairlead.cluster.credentials import StaticToken
from fairlead.cluster.errors import Conflict, Forbidden
from fairlead.cluster.rbac import FEATURES
from fairlead.kit.clock import SystemClock
from fairlead.model.errors import HostError
from fairlead.programs.labels.outputs import OWNED, FeatureOutput, FileOutput, NodeOutput

NAME = "nvidia-features-for-node-1"
LABELS = {"nvidia.com/gpu.count": "8", "nvidia.com/gpu.product": "H100"}


@pytest.fixture
async def server() -> AsyncIterator[UpdatingServer]:
    async with updating_server() as server:
        yield server


@pytest.fixture
async def client(server: ApiServer) -> AsyncIterator[Client]:
    access = Access(parse_server(server.url), credentials=StaticToken("s3cret"))
    client = Client(access, SystemClock(), rng=Random(1), attempt_s=5.0)
    yield client
    await client.close()


def feature(server: ApiServer) -> dict[str, Any]:
    return server.store.get("nodefeatures", NAME, "gpu")


# --- A file -----------------------------------------------------------------------------------------------------------


async def test_no_link_that_lies_in_wait_is_written_through(tmp_path: Path):
    (tmp_path / "precious").write_text("mine")
    (tmp_path / f".gfd.{os.getpid()}").symlink_to(tmp_path / "precious")
    await FileOutput(str(tmp_path / "gfd"), keep=False).write(LABELS)
    assert (tmp_path / "precious").read_text() == "mine"
    assert not (tmp_path / "gfd").is_symlink()


async def test_a_file_is_put_in_place_whole(tmp_path: Path):
    path = tmp_path / "features.d/gfd"
    output = FileOutput(str(path), keep=False)
    await output.write(LABELS)
    assert path.read_text() == "nvidia.com/gpu.count=8\nnvidia.com/gpu.product=H100\n"
    assert path.stat().st_mode & 0o777 == 0o644
    await output.write({"nvidia.com/gpu.count": "7"})
    assert path.read_text() == "nvidia.com/gpu.count=7\n"
    assert [entry.name for entry in path.parent.iterdir()] == ["gfd"]
    await output.withdraw()
    assert not path.exists()


async def test_without_a_file_it_goes_to_standard_output(capsys: pytest.CaptureFixture[str]):
    await FileOutput("", keep=True).write({"a": "b"})
    assert capsys.readouterr().out == "a=b\n"


async def test_a_file_that_cannot_be_written_is_named(tmp_path: Path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(HostError, match=r"taken/gfd: cannot be written .* --output-file"):
        await FileOutput(f"{tmp_path}/taken/gfd", keep=True).write(LABELS)


# --- A NodeFeature object ---------------------------------------------------------------------------------------------


async def test_the_object_is_made_as_nvidia_makes_it(server: ApiServer, client: Client):
    recorded = gfd()["203-api-create-owner"]
    pod = recorded.api_state["pod"]
    server.store.put("pods", pod, "gpu")
    assert recorded.result.requests is not None
    body = recorded.result.requests[-1]["body"]
    await FeatureOutput(client, "node-1", "gpu", "gfd-abc").write(body["spec"]["labels"])
    made = feature(server)
    for key in ("labels", "ownerReferences"):
        assert made["metadata"][key] == body["metadata"][key]
    assert made["spec"] == body["spec"]


@pytest.mark.parametrize("name", ["204-api-pod-missing", "205-api-pod-owned-by-job", "206-api-pod-no-owner"])
async def test_without_a_daemonset_it_has_no_owner(server: ApiServer, client: Client, name: str):
    state = gfd()[name].api_state
    if "pod" in state:
        server.store.put("pods", state["pod"], "gpu")
    await FeatureOutput(client, "node-1", "gpu", "gfd-abc").write(LABELS)
    assert "ownerReferences" not in feature(server)["metadata"]


async def test_stale_labels_go_and_others_annotations_stay(server: ApiServer, client: Client):
    meta = {"name": NAME, "annotations": {"mine": "too"}}
    server.store.put("nodefeatures", {"metadata": meta, "spec": {"labels": {"old": "x"}}}, "gpu")
    await FeatureOutput(client, "node-1", "gpu").write(LABELS)
    assert feature(server)["spec"]["labels"] == LABELS
    assert feature(server)["metadata"]["annotations"] == {"mine": "too"}
    assert feature(server)["metadata"]["labels"] == {"nfd.node.kubernetes.io/node-name": "node-1"}


async def test_what_is_right_already_is_not_written(server: ApiServer, client: Client):
    output = FeatureOutput(client, "node-1", "gpu")
    await output.write(LABELS)
    before = len(server.requests)
    await output.write(LABELS)
    assert [request.method for request in server.requests[before:]] == ["GET"]


async def test_another_writer_in_the_middle_is_met_by_trying_again(server: ApiServer, client: Client):
    """NVIDIA's ends with exit 1 here (209, 210)."""
    server.store.put("nodefeatures", {"metadata": {"name": NAME}, "spec": {"labels": {}}}, "gpu")
    server.faults = [Fault(), Fault(409, "conflict")]
    await FeatureOutput(client, "node-1", "gpu").write(LABELS)
    assert feature(server)["spec"]["labels"] == LABELS


async def test_a_conflict_that_stays_is_told(server: ApiServer, client: Client):
    server.store.put("nodefeatures", {"metadata": {"name": NAME}, "spec": {"labels": {}}}, "gpu")
    server.faults = [Fault(), Fault(409, "conflict")] * 3
    with pytest.raises(Conflict):
        await FeatureOutput(client, "node-1", "gpu").write(LABELS)


async def test_a_missing_right_is_named(server: ApiServer, client: Client):
    server.allowed = {("get", "nodefeatures")}
    with pytest.raises(Forbidden) as error:
        await FeatureOutput(client, "node-1", "gpu").write(LABELS)
    assert "create" in str(error.value)
    assert "nodefeatures" in str(error.value)


# --- The node itself --------------------------------------------------------------------------------------------------


async def test_the_node_is_labelled_and_only_our_own_stale_labels_go(server: ApiServer, client: Client):
    server.store.put("nodes", {"metadata": {"name": "n", "labels": {"nvidia.com/other": "x", "zone": "a"}}})
    output = NodeOutput(client, "n")
    await output.write(LABELS)
    await output.write({"nvidia.com/gpu.count": "7"})
    meta = server.store.get("nodes", "n")["metadata"]
    assert meta["labels"] == {"nvidia.com/other": "x", "zone": "a", "nvidia.com/gpu.count": "7"}
    assert meta["annotations"] == {OWNED: "gpu.count"}
    await output.withdraw()  # the next of us finds them, and what is stale among them
    await NodeOutput(client, "n").write({})
    meta = server.store.get("nodes", "n")["metadata"]
    assert meta["labels"] == {"nvidia.com/other": "x", "zone": "a"}
    assert OWNED not in meta.get("annotations", {})


async def test_a_pod_that_cannot_be_read_now_does_not_cost_the_object_its_owner(server: ApiServer, client: Client):
    server.store.put("pods", gfd()["203-api-create-owner"].api_state["pod"], "gpu")
    await FeatureOutput(client, "node-1", "gpu", "gfd-abc").write(LABELS)
    before = feature(server)["metadata"]["ownerReferences"]
    server.store.remove("pods", "gfd-abc", "gpu")
    await FeatureOutput(client, "node-1", "gpu", "gfd-abc").write({"nvidia.com/gpu.count": "7"})
    assert feature(server)["metadata"]["ownerReferences"] == before


async def test_a_node_that_is_right_already_is_not_written(server: ApiServer, client: Client):
    server.store.put("nodes", {"metadata": {"name": "n"}})
    output = NodeOutput(client, "n")
    await output.write(LABELS)
    before = len(server.requests)
    await output.write(LABELS)
    assert [request.method for request in server.requests[before:]] == ["GET"]


# --- Rights -----------------------------------------------------------------------------------------------------------


def rights(feature: str) -> set[tuple[str, str]]:
    return {(verb, rule.resource) for rule in FEATURES[feature] for verb in rule.verbs}


async def test_a_feature_object_needs_just_what_the_reference_says(server: ApiServer, client: Client):
    server.store.put("pods", gfd()["203-api-create-owner"].api_state["pod"], "gpu")
    server.allowed = rights("`fairlead nvidia labels`")
    for labels in (LABELS, {"nvidia.com/gpu.count": "7"}):
        await FeatureOutput(client, "node-1", "gpu", "gfd-abc").write(labels)
    assert {request.method for request in server.requests} == {"GET", "POST", "PATCH"}


async def test_labels_on_the_node_need_just_what_the_reference_says(server: ApiServer, client: Client):
    server.store.put("nodes", {"metadata": {"name": "n"}})
    server.allowed = rights("`fairlead nvidia labels --to-node`")
    await NodeOutput(client, "n").write(LABELS)
    server.allowed = {("get", "nodes")}
    with pytest.raises(Forbidden, match="patch"):
        await NodeOutput(client, "n").write({})


# What NVIDIA's chart grants, and for the node the same verbs.
CHART = {(verb, "nodefeatures") for verb in ("get", "list", "watch", "create", "update")}
CHART_NODE = {("get", "nodes"), ("update", "nodes")}


async def test_a_feature_object_is_updated_with_the_rights_of_nvidias_chart(server: UpdatingServer, client: Client):
    meta = {"name": NAME, "annotations": {"mine": "too"}}
    server.store.put("nodefeatures", {"metadata": meta, "spec": {"labels": {"old": "x"}, "features": {"a": 1}}}, "gpu")
    server.allowed = set(CHART)
    await FeatureOutput(client, "node-1", "gpu").write(LABELS)
    assert feature(server)["spec"] == {"labels": LABELS, "features": {"a": 1}}
    assert feature(server)["metadata"]["annotations"] == {"mine": "too"}
    assert [request.method for request in server.requests] == ["GET", "PATCH", "GET", "PUT"]


async def test_the_node_is_updated_where_it_may_not_be_patched(server: UpdatingServer, client: Client):
    server.store.put(
        "nodes", {"metadata": {"name": "n", "labels": {"zone": "a"}}, "status": {"capacity": {"cpu": "1"}}}
    )
    server.allowed = set(CHART_NODE)
    await NodeOutput(client, "n").write(LABELS)
    await NodeOutput(client, "n").write({"nvidia.com/gpu.count": "7"})
    node = server.store.get("nodes", "n")
    assert node["metadata"]["labels"] == {"zone": "a", "nvidia.com/gpu.count": "7"}
    assert node["status"] == {"capacity": {"cpu": "1"}}


async def test_what_another_writes_during_an_update_is_not_lost(server: UpdatingServer, client: Client):
    server.store.put("nodes", {"metadata": {"name": "n", "labels": {"zone": "a"}}})
    server.allowed = set(CHART_NODE)

    def write() -> None:
        server.before_update = lambda: None
        server.store.put("nodes", {"metadata": {"name": "n", "labels": {"zone": "b", "more": "x"}}})

    server.before_update = write
    await NodeOutput(client, "n").write(LABELS)
    assert server.store.get("nodes", "n")["metadata"]["labels"] == {"zone": "b", "more": "x", **LABELS}


@pytest.mark.parametrize("kind", ["nodes", "nodefeatures"])
async def test_an_update_that_always_conflicts_is_given_up(server: UpdatingServer, client: Client, kind: str):
    server.allowed = CHART | CHART_NODE
    server.store.put("nodes", {"metadata": {"name": "n"}})
    server.store.put("nodefeatures", {"metadata": {"name": NAME}, "spec": {"labels": {}}}, "gpu")

    def write() -> None:
        for plural, name, namespace in (("nodes", "n", ""), ("nodefeatures", NAME, "gpu")):
            server.store.put(plural, server.store.get(plural, name, namespace), namespace)

    server.before_update = write
    output = NodeOutput(client, "n") if kind == "nodes" else FeatureOutput(client, "node-1", "gpu")
    with pytest.raises(Conflict, match="has been modified"):
        await output.write(LABELS)
    assert sum(request.method == "PUT" for request in server.requests) == 3

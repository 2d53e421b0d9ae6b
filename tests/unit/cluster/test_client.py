"""Calls to an API server: answers, refusals, bad days, and what is tried again. Watches are in test_watches."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.apiserver.fixtures import Quick
from tests.apiserver.server import ApiServer, Fault

from fairlead.cluster import client as client_module
from fairlead.cluster.access import Access, parse_server
from fairlead.cluster.client import AnyObject, Client
from fairlead.cluster.credentials import StaticToken
from fairlead.cluster.errors import (
    Busy,
    ClusterError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    MalformedResponse,
    NoAccess,
    NotFound,
    ServerFailed,
    TooLarge,
    TooSlow,
    Unauthorized,
    Unreachable,
)
from fairlead.cluster.kinds import NODE_FEATURES, NODES, PODS
from fairlead.cluster.patches import MergePatch, drop, expect, json_patch, put


def _node(name: str = "n1", **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"podCIDR": "10.0.0.0/24"}, "status": {"capacity": {}, **status}}


def _pod(name: str, node: str = "n1", phase: str = "Pending", **meta: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **meta}, "spec": {"nodeName": node}, "status": {"phase": phase}}


async def test_get_gives_the_fields_that_were_asked_for(server: ApiServer, client: Client):
    server.store.put("nodes", _node())
    found = await client.get(NODES, "n1", AnyObject)
    assert found.metadata.name == "n1"
    assert found.metadata.resource_version == "101"


async def test_one_connection_serves_many_calls(server: ApiServer, client: Client):
    server.store.put("nodes", _node())
    for _ in range(5):
        await client.get(NODES, "n1", AnyObject)
    assert server.connections == 1


@pytest.mark.parametrize(("kept", "made"), [(client_module.IDLE_KEPT, 10), (6, 6)])
async def test_calls_at_once_use_the_connections_of_those_before(
    server: ApiServer, client: Client, quick: Quick, kept: int, made: int
):
    server.store.put("nodes", _node())
    many = Client(client.access, quick, idle_kept=kept)
    for _ in range(2):
        await asyncio.gather(*(many.get(NODES, "n1", AnyObject) for _ in range(6)))
    await many.close()
    assert server.connections == made


async def test_a_kept_connection_that_was_closed_is_replaced_without_a_word(
    server: ApiServer, client: Client, quick: Quick
):
    server.store.put("nodes", _node())
    await client.get(NODES, "n1", AnyObject)
    await server.drop()
    await client.get(NODES, "n1", AnyObject)
    assert server.connections == 2
    assert quick.slept_s == []


async def test_a_connection_that_was_quiet_for_long_is_not_trusted(server: ApiServer, client: Client, quick: Quick):
    server.store.put("nodes", _node())
    await client.get(NODES, "n1", AnyObject)
    await quick.sleep(client_module.IDLE_MAX_S)
    await client.get(NODES, "n1", AnyObject)
    assert server.connections == 2


async def test_a_list_is_read_page_by_page(server: ApiServer, client: Client):
    for number in range(7):
        server.store.put("pods", _pod(f"p{number}"), "default")
    server.store.put("pods", _pod("elsewhere", node="n2"), "default")
    listing = await client.list(PODS, AnyObject, fields="spec.nodeName=n1", page=3)
    assert [one.metadata.name for one in listing.items] == [f"p{number}" for number in range(7)]
    assert listing.version == str(server.store.version)
    assert [request.query.get("continue") for request in server.requests] == [None, "3", "6"]


async def test_objects_that_are_too_large_for_one_page_come_in_smaller_ones(
    server: ApiServer, client: Client, quick: Quick, monkeypatch: pytest.MonkeyPatch
):
    """Whoever may make pods could else keep a node from seeing any."""
    monkeypatch.setattr(client_module, "BODY_MAX_BYTES", 6000)
    for number in range(60):
        size = 4000 if 20 <= number < 30 else 10
        server.store.put("pods", _pod(f"p{number:02}", annotations={"a": "<" * size}), "default")
    listing = await client.list(PODS, AnyObject, page=16)
    assert [one.metadata.name for one in listing.items] == [f"p{number:02}" for number in range(60)]
    limits = [int(request.query["limit"]) for request in server.requests]
    assert (limits[0], min(limits), limits[-1]) == (16, 1, 16)
    assert not quick.slept_s


async def test_one_object_that_is_too_large_is_told(server: ApiServer, client: Client, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(client_module, "BODY_MAX_BYTES", 1000)
    server.store.put("pods", _pod("a", annotations={"a": "x" * 2000}), "default")
    with pytest.raises(TooLarge, match="larger than 1000 bytes"):
        await client.list(PODS, AnyObject)


async def test_a_list_of_one_namespace_asks_for_it(server: ApiServer, client: Client):
    server.store.put("pods", _pod("a"), "blue")
    server.store.put("pods", _pod("b"), "green")
    listing = await client.list(PODS, AnyObject, namespace="blue", labels="app=x")
    assert [one.metadata.name for one in listing.items] == ["a"]
    assert server.requests[0].path == "/api/v1/namespaces/blue/pods"
    assert server.requests[0].query["labelSelector"] == "app=x"


async def test_a_list_without_end_is_given_up(server: ApiServer, client: Client, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(client_module, "PAGES_MAX", 2)
    for number in range(4):
        server.store.put("pods", _pod(f"p{number}"), "default")
    with pytest.raises(MalformedResponse, match="no end"):
        await client.list(PODS, AnyObject, page=1)


# --- Changes ----------------------------------------------------------------------------------------------------------


async def test_a_json_patch_reaches_the_status_and_nothing_else(server: ApiServer, client: Client):
    server.store.put("nodes", _node())
    ops = [put("8", "status", "capacity", "example.com/gpu"), put("x", "spec", "podCIDR")]
    await client.patch(NODES, "n1", json_patch(ops), AnyObject, subresource="status")
    node = server.store.get("nodes", "n1")
    assert node["status"]["capacity"] == {"example.com/gpu": "8"}
    assert node["spec"] == {"podCIDR": "10.0.0.0/24"}
    request = server.requests[-1]
    assert request.path == "/api/v1/nodes/n1/status"
    assert request.json()[0] == {"op": "add", "path": "/status/capacity/example.com~1gpu", "value": "8"}


@pytest.mark.parametrize(
    ("patch", "kind"),
    [
        (MergePatch({"metadata": {"labels": {"a": "b"}}}), "application/merge-patch+json"),
        (json_patch([put({"a": "b"}, "metadata", "labels")]), "application/json-patch+json"),
    ],
)
async def test_every_kind_of_patch_says_what_it_is(server: ApiServer, client: Client, patch: Any, kind: str):
    server.store.put("nodes", _node())
    await client.patch(NODES, "n1", patch, AnyObject)
    assert server.store.get("nodes", "n1")["metadata"]["labels"] == {"a": "b"}
    assert server.requests[-1].headers["content-type"] == kind


async def test_objects_are_made_and_removed(server: ApiServer, client: Client):
    feature = {"metadata": {"name": "gpu"}, "spec": {"labels": {"a": "b"}}}
    made = await client.create(NODE_FEATURES, feature, AnyObject, namespace="default")
    assert made.metadata.name == "gpu"
    with pytest.raises(Conflict, match="already exists"):
        await client.create(NODE_FEATURES, feature, AnyObject, namespace="default")
    await client.delete(NODE_FEATURES, "gpu", namespace="default")
    with pytest.raises(NotFound):
        await client.delete(NODE_FEATURES, "gpu", namespace="default")
    assert server.requests[0].path == "/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/default/nodefeatures"


async def test_a_failed_expectation_refuses_the_whole_patch(server: ApiServer, client: Client):
    server.store.put("nodes", _node())
    ops = [put("8", "status", "capacity", "a.com/b"), expect("no", "metadata", "name"), drop("status", "capacity")]
    with pytest.raises(Invalid, match="test failed"):
        await client.patch(NODES, "n1", json_patch(ops), AnyObject, subresource="status")
    assert server.store.get("nodes", "n1")["status"]["capacity"] == {}


async def test_a_name_cannot_leave_its_place_in_the_path(server: ApiServer, client: Client):
    with pytest.raises(NotFound):
        await client.get(NODES, "../pods?x=y", AnyObject)
    assert server.requests[0].path == "/api/v1/nodes/..%2Fpods%3Fx%3Dy"


# --- Refusals ---------------------------------------------------------------------------------------------------------


async def test_a_forbidden_call_names_the_rule_that_is_missing(server: ApiServer, client: Client):
    server.store.put("nodes", _node())
    server.allowed = {("get", "nodes")}
    await client.get(NODES, "n1", AnyObject)
    with pytest.raises(Forbidden) as caught:
        await client.patch(NODES, "n1", MergePatch({}), AnyObject, subresource="status")
    assert str(caught.value) == (
        "system:serviceaccount:default:fairlead may not patch nodes/status of 'n1'. Add this rule to its ClusterRole:\n"
        '- apiGroups: [""]\n  resources: ["nodes/status"]\n  verbs: ["patch"]'
    )


async def test_a_forbidden_call_names_group_and_namespace(server: ApiServer, client: Client):
    server.allowed = set()
    with pytest.raises(Forbidden, match=r"(?s)API group 'nfd\.k8s-sigs\.io'.*Role in namespace 'blue'.*\"create\""):
        await client.create(NODE_FEATURES, {"metadata": {"name": "x"}}, AnyObject, namespace="blue")


async def test_a_forbidden_call_without_a_known_text_shows_the_text(server: ApiServer, client: Client):
    server.faults = [Fault(code=403, message="no, says the webhook")]
    with pytest.raises(Forbidden, match=r"(?s)this account may not get nodes.*no, says the webhook"):
        await client.get(NODES, "n1", AnyObject)


async def test_wrong_credentials_are_tried_once_more_and_never_told(server: ApiServer, client: Client, quick: Quick):
    server.tokens = {"another"}
    with pytest.raises(Unauthorized) as caught:
        await client.get(NODES, "n1", AnyObject)
    assert len(server.requests) == 2
    assert "s3cret" not in str(caught.value) + repr(caught.value) + repr(vars(caught.value))
    assert server.requests[0].headers["authorization"] == "Bearer s3cret"


async def test_a_token_that_is_no_token_is_not_sent_and_not_told(server: ApiServer, quick: Quick):
    access = Access(parse_server(server.url), credentials=StaticToken("s3cret\r\nX-Other: 1"), source="the kubeconfig")
    with pytest.raises(NoAccess, match="the kubeconfig: the value of the header Authorization") as caught:
        await Client(access, quick).get(NODES, "n1", AnyObject)
    assert "s3cret" not in str(caught.value)
    assert server.connections == 0


@pytest.mark.parametrize(("code", "kind"), [(404, NotFound), (409, Conflict), (422, Invalid), (410, Gone)])
async def test_a_no_is_not_asked_again(server: ApiServer, client: Client, code: int, kind: type[ClusterError]):
    server.faults = [Fault(code=code, message="because")]
    with pytest.raises(kind, match="cannot get nodes of 'n1': because"):
        await client.get(NODES, "n1", AnyObject)
    assert len(server.requests) == 1


# --- Bad days ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault",
    [
        Fault(code=500, message="etcd"),
        Fault(code=503, message="starting"),
        Fault(code=429, message="later"),
        Fault(close=True),
        Fault(raw=b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"),
        Fault(raw=b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n\xff\xff"),
        Fault(raw=b"SSH-2.0-OpenSSH\r\n"),
    ],
)
async def test_what_may_pass_is_tried_again(server: ApiServer, client: Client, quick: Quick, fault: Fault):
    server.store.put("nodes", _node())
    server.faults = [fault, fault]
    if fault.raw is not None and fault.raw.endswith(b"\xff"):
        with pytest.raises(
            MalformedResponse, match="expected AnyObject"
        ):  # a whole answer that makes no sense will not change
            await client.get(NODES, "n1", AnyObject)
        return
    assert (await client.get(NODES, "n1", AnyObject)).metadata.name == "n1"
    assert len(quick.slept_s) == 2
    assert 0 < quick.slept_s[0] < quick.slept_s[1]


async def test_retry_after_is_kept_to(server: ApiServer, client: Client, quick: Quick):
    server.store.put("nodes", _node())
    server.faults = [Fault(code=429, message="later", retry_after="7")]
    await client.get(NODES, "n1", AnyObject)
    assert quick.slept_s[0] >= 7


@pytest.mark.parametrize(
    ("fault", "kind"), [(Fault(code=503, message="down"), ServerFailed), (Fault(code=429, message="full"), Busy)]
)
async def test_tries_end_when_patience_does(
    server: ApiServer, client: Client, quick: Quick, fault: Fault, kind: type[ClusterError]
):
    server.faults = [fault] * 100
    with pytest.raises(kind):
        await client.get(NODES, "n1", AnyObject)
    assert sum(quick.slept_s) <= client_module.PATIENCE_S


async def test_a_create_is_not_repeated_unless_the_server_says_so(server: ApiServer, client: Client):
    server.faults = [Fault(close=True)]
    with pytest.raises(Unreachable):
        await client.create(NODE_FEATURES, {"metadata": {"name": "x"}}, AnyObject, namespace="d")
    assert len(server.requests) == 1
    server.faults = [Fault(code=429, message="later", retry_after="1")]
    await client.create(NODE_FEATURES, {"metadata": {"name": "x"}}, AnyObject, namespace="d")
    assert len(server.requests) == 3


async def test_a_server_that_does_not_answer_is_too_slow(server: ApiServer, quick: Quick, client: Client):
    hasty = Client(client.access, quick, attempt_s=0.05, patience_s=0.0)
    server.faults = [Fault(hang=True)]
    with pytest.raises(TooSlow, match=r"get nodes of 'n1' at http://127\.0\.0\.1:\d+: no answer within 0\.05 s"):
        await hasty.get(NODES, "n1", AnyObject)


async def test_a_server_that_is_away_is_named(server: ApiServer, client: Client, quick: Quick):
    await server.stop()
    with pytest.raises(Unreachable, match=r"the API server http://127\.0\.0\.1:\d+ cannot be reached: "):
        await client.get(NODES, "n1", AnyObject)
    assert len(quick.slept_s) > 3
    await server.start()


async def test_it_is_known_whether_the_server_answered_the_last_request(server: ApiServer, client: Client):
    answers = [client.answers]
    with pytest.raises(NotFound):  # an answer, too
        await client.get(NODES, "n1", AnyObject)
    answers.append(client.answers)
    server.faults = [Fault(code=503, message="etcd")] * 100
    with pytest.raises(ServerFailed):
        await client.get(NODES, "n1", AnyObject)
    answers.append(client.answers)
    server.faults = []
    await client.ping(NODES)
    answers.append(client.answers)
    await server.stop()
    with pytest.raises(Unreachable):
        await client.get(NODES, "n1", AnyObject)
    answers.append(client.answers)
    await server.start()
    assert answers == [None, True, False, True, False]


async def test_an_answer_without_end_is_not_kept(server: ApiServer, client: Client, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(client_module, "BODY_MAX_BYTES", 1000)
    server.store.put("nodes", _node(images=["x" * 2000]))
    hasty = Client(client.access, client.clock, patience_s=0.0)
    with pytest.raises(MalformedResponse, match="larger than 1000 bytes"):
        await hasty.get(NODES, "n1", AnyObject)
    await hasty.close()

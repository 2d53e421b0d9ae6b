"""What the page of a running daemon is sent, and to whom."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.system.rig import GPU, PATIENCE_S, Node, running
from tests.system.webclient import HTTP, ask_for, get

from fairlead.app import page
from fairlead.app.questions import itself
from fairlead.model.device import Device
from fairlead.model.names import DeviceId, ResourceName, SlotId
from fairlead.model.resource import Resource, Slot
from fairlead.testing import Kubelet


async def events(node: Node) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    assert node.daemon.web is not None
    await node.until_fact("http")
    reader, writer = await asyncio.open_connection("127.0.0.1", node.daemon.web.port)
    writer.write(ask_for("/events"))
    await reader.readuntil(b"retry: 2000\n\n")
    return reader, writer


async def document(reader: asyncio.StreamReader) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE_S):
        while not (line := await reader.readline()).startswith(b"data: "):
            pass
    found: dict[str, Any] = json.loads(line.removeprefix(b"data: "))
    return found


async def test_the_page_and_its_files_are_served_with_a_strict_policy(kubelet: Kubelet, kubelet_root: Path):
    async with running(kubelet, kubelet_root, HTTP) as node:
        for path in ("/", "/page.js", "/page.css", "/words.js", "/mark.svg"):
            status, body = await get(node, path)
            assert status == 200
            assert body
        _, html = await get(node, "/")
        assert "<script>" not in html
        assert "style=" not in html
        assert "http://" not in html
        assert "https://" not in html


async def test_a_change_reaches_a_page_that_is_open(kubelet: Kubelet, kubelet_root: Path):
    async with running(kubelet, kubelet_root, HTTP) as node:
        await node.ready()
        reader, writer = await events(node)
        first = await document(reader)
        assert {each["health"] for each in first["status"]["devices"]} == {"healthy"}
        assert first["links"]
        device = node.ids()[3]
        await node.steer(do="fail", device=device, xid=79)
        while True:
            now = await document(reader)
            bad = [each for each in now["status"]["devices"] if each["health"] == "unhealthy"]
            if bad:
                break
        assert bad[0]["id"] == device
        assert bad[0]["cause"].startswith("xid-79")
        assert any(fact["event"] == "unhealthy" for fact in now["facts"])
        writer.close()


async def test_pages_that_open_at_once_share_one_maker_and_leave_nothing_behind(kubelet: Kubelet, kubelet_root: Path):
    async with running(kubelet, kubelet_root, HTTP) as node:
        await node.ready()
        before = len(asyncio.all_tasks())
        pages = await asyncio.gather(*(events(node) for _ in range(4)))
        await asyncio.gather(*(document(reader) for reader, _ in pages))
        assert sum(task.get_name() == "page" for task in asyncio.all_tasks()) == 1
        for _, writer in pages:
            writer.close()
        async with asyncio.timeout(PATIENCE_S):
            while len(asyncio.all_tasks()) > before:  # noqa: ASYNC110 - it calls no one
                await asyncio.sleep(0.005)


async def test_a_document_that_cannot_be_made_is_followed_by_others(
    kubelet: Kubelet, kubelet_root: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(page, "REFRESH_S", 0.05)
    async with running(kubelet, kubelet_root, HTTP) as node:
        await node.ready()
        reader, writer = await events(node)
        await document(reader)
        with monkeypatch.context() as broken:
            broken.setattr(page, "make_status", None)
            await node.until_fact("http-failed")
        after = node.daemon.clock.now()
        while (await document(reader))["status"]["now_s"] < after:
            pass
        writer.close()


async def test_nothing_is_made_for_a_page_that_is_closed(kubelet: Kubelet, kubelet_root: Path):
    async with running(kubelet, kubelet_root, HTTP) as node:
        await node.ready()
        reader, writer = await events(node)
        await document(reader)
        assert any(task.get_name() == "page" for task in asyncio.all_tasks())
        writer.close()
        async with asyncio.timeout(PATIENCE_S):
            while any(task.get_name() == "page" for task in asyncio.all_tasks()):  # noqa: ASYNC110 - it calls no one
                await asyncio.sleep(0.005)


async def test_holders_are_shown_without_a_fact(kubelet: Kubelet, kubelet_root: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(page, "REFRESH_S", 0.05)
    async with running(kubelet, kubelet_root, HTTP) as node:
        await node.ready()
        reader, writer = await events(node)
        pod = await kubelet.run_pod("train", {"main": {GPU: 2}})
        while sum(each["held"] for each in (await document(reader))["status"]["devices"]) != 2:
            pass
        await kubelet.delete_pod(pod)
        while sum(each["held"] for each in (await document(reader))["status"]["devices"]):
            pass
        writer.close()


async def test_what_if_is_answered_and_nonsense_is_named(kubelet: Kubelet, kubelet_root: Path):
    async with running(kubelet, kubelet_root, HTTP) as node:
        await node.ready()
        status, text = await get(node, f"/explain.json?resource={GPU}&count=3")
        assert status == 200
        assert len(json.loads(text)["slots"]) == 3
        status, text = await get(node, "/explain.json?resource=nvidia.com%2Fgup&count=3")
        assert status == 400
        assert "did you mean" in json.loads(text)["error"]
        assert (await get(node, f"/explain.json?resource={GPU}&count=many"))[0] == 400
        assert (await get(node, f"/explain.json?{'x=1&' * 20}"))[0] == 400


async def history(node: Node, device: str) -> list[dict[str, Any]]:
    status, text = await get(node, f"/history.json?device={device}")
    assert status == 200
    found: list[dict[str, Any]] = json.loads(text)["facts"]
    return found


async def test_the_history_of_a_device_is_its_own_and_the_newest_is_first(kubelet: Kubelet, kubelet_root: Path):
    async with running(kubelet, kubelet_root, HTTP) as node:
        await node.ready()
        device = node.ids()[3]
        await node.steer(do="fail", device=device, xid=79)
        await node.steer(do="fail", device=node.ids()[4], xid=48)
        await node.until_fact("unhealthy", device=device)
        await node.steer(do="clear", device=device)
        await node.until_fact("healthy", device=device)
        await kubelet.run_pod("train", {"main": {GPU: 7}})
        told = await history(node, device)
        assert {fact.get("device", device) for fact in told} == {device}
        kinds = [fact["event"] for fact in told]
        assert kinds == ["allocated", "healthy", "probation", "unhealthy", "device-found"]
        assert [fact["seq"] for fact in told] == sorted((fact["seq"] for fact in told), reverse=True)
        assert told[3]["cause"].startswith("xid-79")
        assert "allocated" not in [fact["event"] for fact in await history(node, node.ids()[4])]


async def test_the_history_of_a_device_is_short(kubelet: Kubelet, kubelet_root: Path):
    async with running(kubelet, kubelet_root, HTTP) as node:
        await node.ready()
        device, other = node.ids()[:2]
        for number in range(100):
            node.daemon.journal.record("probe-failed", device=device, reason=str(number))
        node.daemon.journal.record("cleaned", device=other)
        assert [fact["reason"] for fact in await history(node, device)] == [str(99 - n) for n in range(20)]
        assert [fact["event"] for fact in await history(node, other)] == ["cleaned", "device-found"]


async def test_the_history_of_an_unknown_device_is_refused(kubelet: Kubelet, kubelet_root: Path):
    async with running(kubelet, kubelet_root, HTTP) as node:
        await node.ready()
        for query in ("device=GPU-none", "device=", "", "x=1&" * 20):
            status, text = await get(node, f"/history.json?{query}")
            assert status == 400
            assert json.loads(text)["error"]


async def test_a_cordon_on_a_device_is_in_the_history_of_its_partitions(kubelet: Kubelet, kubelet_root: Path):
    async with running(kubelet, kubelet_root, HTTP.replace("h100x8", "mixed")) as node:
        await node.ready(GPU, 10)
        part = next(device for device in node.daemon.engine.inventory.devices if device.parent)
        other = next(device for device in node.daemon.engine.inventory.devices if not device.parent)
        await node.daemon.questions.cordon({"device": part.parent, "reason": "fan is replaced"}, itself())
        assert (await history(node, part.id))[0]["reason"] == "fan is replaced"
        assert "cordoned" not in [fact["event"] for fact in await history(node, other.id)]
        node.daemon.journal.record("probe-failed", device=part.parent, reason="of the device as a whole")
        assert (await history(node, part.id))[0]["event"] == "cordoned"


def test_a_grant_is_of_the_device_that_the_container_was_given():
    name, slots = ResourceName(GPU), [Slot(SlotId(f"{each}::0"), DeviceId(each)) for each in ("a", "b")]
    resource = Resource(name, tuple(slots))
    one, other = Device(id=DeviceId("a")), Device(id=DeviceId("b"))
    elsewhere = {(name, slots[0].id): other.id}
    assert page.slots_on(one, [resource], {}) == {(name, slots[0].id)}
    assert page.slots_on(one, [resource], elsewhere) == set()
    assert page.slots_on(other, [resource], elsewhere) == {(name, slot.id) for slot in slots}


async def test_on_the_network_the_page_needs_a_token_and_probes_do_not(kubelet: Kubelet, kubelet_root: Path):
    async with running(kubelet, kubelet_root, HTTP.replace("127.0.0.1:0", "0.0.0.0:0")) as node:
        await node.ready()
        for path in ("/", "/status.json", "/events", "/explain.json?resource=x", "/history.json?device=0"):
            status, text = await get(node, path)
            assert status == 401
            assert "http.tokenFile" in text
        served = node.find("http")
        assert served is not None
        assert "page" not in served.keys  # it is refused
        assert (await get(node, "/readyz"))[0] == 200
        assert (await get(node, "/metrics"))[0] == 200


async def test_the_token_of_the_file_opens_the_page_and_no_other_does(kubelet: Kubelet, kubelet_root: Path):
    file = kubelet_root / "token"
    file.write_text("open-sesame\n")
    config = HTTP.replace("{listen:", f"{{tokenFile: {file}, listen:")
    async with running(kubelet, kubelet_root, config) as node:
        await node.ready()
        assert (await get(node, "/status.json?token=open-sesame"))[0] == 200
        assert (await get(node, "/status.json", "Authorization: Bearer open-sesame"))[0] == 200
        for path in ("/status.json", "/status.json?token=", "/status.json?token=open", "/?token=%00", "/index.html"):
            assert (await get(node, path))[0] == 401
        assert "a token is needed" in (await get(node, "/"))[1]
        assert "this token is not the one of http.tokenFile" in (await get(node, "/?token=open"))[1]
        _, html = await get(node, "/?token=open-sesame")
        for file_of_the_page in re.findall(r'(?:href|src)="([a-z]+\.[a-z]+)"', html):  # as a browser asks for them
            if file_of_the_page != "status.json":
                assert (await get(node, f"/{file_of_the_page}"))[0] == 200
        file.write_text("")
        assert (await get(node, "/status.json?token="))[0] == 401
        assert "is empty" in node.daemon.problems["http-token"]
        file.unlink()
        assert (await get(node, "/status.json?token=open-sesame"))[0] == 401
        assert str(file) in node.daemon.problems["http-token"]


async def test_an_address_that_needs_a_restart_does_not_open_the_page_before_it(kubelet: Kubelet, kubelet_root: Path):
    on_network = HTTP.replace("127.0.0.1:0", "0.0.0.0:0")
    async with running(kubelet, kubelet_root, on_network) as node:
        await node.ready()
        node.write(HTTP)
        await node.reload()
        assert (await get(node, "/status.json"))[0] == 401


async def test_the_page_can_be_switched_off(kubelet: Kubelet, kubelet_root: Path):
    async with running(kubelet, kubelet_root, HTTP.replace("{listen:", "{page: false, listen:")) as node:
        await node.ready()
        assert (await get(node, "/"))[0] == 404
        assert (await get(node, "/readyz"))[0] == 200

"""What the page tells of one device: its history, and why a container would not get it."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.app.questions import itself
from tests.browser.visits import GPU, SHARED, Visit, find_faults, visiting
from tests.system.rig import Node

pytestmark = pytest.mark.browser
pytest.importorskip("playwright.async_api", reason="run: python -m tests.browser.provision")


async def fail_and_clear(node: Node, device: str) -> None:
    await node.steer(do="fail", device=device, xid=79)
    await node.until_fact("unhealthy", device=device)
    await node.daemon.questions.cordon({"device": device, "reason": "fan is replaced"}, itself())
    await node.steer(do="clear", device=device)
    await node.until_fact("healthy", device=device)


async def ask(visit: Visit, resource: str, count: int = 1) -> None:
    await visit.page.select_option("#resource", resource)
    await visit.page.fill("#count", str(count))
    await visit.page.click("#ask button")


async def test_a_fault_and_its_end_are_in_the_history_with_their_causes(visit: Visit, node: Node):
    device, other = node.ids()[2], node.ids()[3]
    await fail_and_clear(node, device)
    await node.steer(do="fail", device=other, xid=48)
    await node.until_fact("unhealthy", device=other)
    dialog = await visit.open_device(device)
    lines = await dialog.locator("#history li").all_inner_texts()
    bad = next(n for n, line in enumerate(lines) if "✕ unhealthy" in line)
    good = next(n for n, line in enumerate(lines) if "✓ healthy" in line)
    assert good < bad, "the newest is first"
    assert "xid-79" in lines[bad]
    assert "before: healthy" in lines[bad]
    assert "before: probation" in lines[good]
    assert any("cordoned fan is replaced" in line for line in lines[good:bad])
    assert "found" in lines[-1]
    assert not any("xid-48" in line for line in lines)
    assert await dialog.locator("#history time[datetime]").count() == len(lines)


async def test_a_grant_is_in_the_history_of_the_devices_that_it_is_of(visit: Visit, node: Node):
    pod = await node.kubelet.run_pod("train", {"main": {GPU: 2}})
    given = pod.containers["main"].devices[GPU]
    for device in node.ids()[:6]:
        dialog = await visit.open_device(device)
        granted = dialog.locator("#history li.allocated")
        assert await granted.count() == (device in given)
        if device in given:
            assert f"granted {GPU} · 2 slots" in await granted.inner_text()
        await visit.page.keyboard.press("Escape")


async def test_what_happens_to_a_device_that_is_open_is_shown_and_the_focus_stays(visit: Visit, node: Node):
    device = node.ids()[1]
    dialog = await visit.open_device(device)
    history = dialog.locator("#history")
    await history.focus()
    await node.steer(do="fail", device=device, xid=79)
    await history.get_by_text("xid-79").wait_for()
    assert "unhealthy" in await dialog.locator("dl").inner_text()
    assert await visit.page.evaluate("document.activeElement.id") == "history"
    await node.steer(do="unplug", device=device)
    await dialog.locator("dd", has_text="gone").wait_for()


async def test_the_history_is_in_chinese_too(visit: Visit, node: Node):
    device = node.ids()[2]
    await fail_and_clear(node, device)
    await visit.page.click("#language")
    dialog = await visit.open_device(device)
    text = await dialog.inner_text()
    for words in ("历史", "✕ 不健康", "xid-79", "之前", "已隔离 fan is replaced", "已发现"):
        assert words in text


async def test_the_history_of_others_words_is_text_and_never_markup(visit: Visit, node: Node):
    device, markup = node.ids()[1], "<img src=x onerror=alert(1)>"
    await node.steer(do="fail", device=device, code="odd", kind="transient", message=markup)
    await node.until_fact("unhealthy", device=device)
    await node.daemon.questions.cordon({"device": device, "reason": markup}, itself())
    dialog = await visit.open_device(device)
    told = await dialog.locator("#history").inner_text()
    assert f"odd: {markup}" in told
    assert f"cordoned {markup}" in told
    await visit.page.keyboard.press("Escape")
    await ask(visit, GPU)
    await visit.page.locator(".reasons li").first.wait_for()
    assert markup in await visit.page.locator(".reasons").inner_text()
    assert await visit.page.locator("img").count() == 1  # the mark of the page


async def test_a_history_that_cannot_be_read_is_said_and_asked_for_again(visit: Visit, node: Node):
    await visit.page.route("**/history.json*", lambda route: route.abort())
    dialog = await visit.open_device(node.ids()[0])
    assert await dialog.locator("#history li").all_inner_texts() == ["connection lost, trying again"]
    await visit.page.unroute("**/history.json*")
    # No fact is needed: the next document asks again.
    await dialog.locator("#history").get_by_text("found").wait_for()


async def test_what_if_says_how_many_slots_each_reason_leaves_out(visit: Visit, node: Node):
    pod = await node.kubelet.run_pod("holder", {"main": {GPU: 1}})
    failed = next(device for device in node.ids()[:6] if device not in pod.containers["main"].devices[GPU])
    await node.steer(do="fail", device=failed, xid=79)
    await node.until_fact("unhealthy", device=failed)
    await ask(visit, GPU, 2)
    await visit.see("2 slots are left out:")
    reasons = await visit.page.locator(".reasons li").all_inner_texts()
    assert "1: in use" in reasons
    assert any(line.startswith("1: unhealthy: xid-79") for line in reasons)
    assert len(reasons) == 2


async def test_slots_that_are_left_out_for_one_reason_are_one_line(visit: Visit, node: Node):
    await node.kubelet.run_pod("holder", {"main": {SHARED: 3}})
    await ask(visit, SHARED)
    await visit.see("3 slots are left out:")
    assert await visit.page.locator(".reasons li").all_inner_texts() == ["3: in use"]
    await visit.page.click("#language")
    await ask(visit, SHARED)
    await visit.see("3 个槽位未参与")
    assert await visit.page.locator(".reasons li").all_inner_texts() == ["3: 正在使用"]


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_axe_finds_nothing_in_a_device_that_is_open(chromium: Any, node: Node, theme: str):
    device = node.ids()[2]
    await fail_and_clear(node, device)
    async with visiting(chromium, node, color_scheme=theme, bypass_csp=True) as visit:
        await ask(visit, GPU)
        await visit.see("left out")
        await visit.open_device(device)
        assert await find_faults(visit) == []


async def test_a_device_that_is_open_fits_a_phone(chromium: Any, node: Node):
    device = node.ids()[2]
    await fail_and_clear(node, device)
    async with visiting(chromium, node, viewport={"width": 390, "height": 800}) as visit:
        dialog = await visit.open_device(device)
        assert await dialog.evaluate("(each) => each.scrollWidth - each.clientWidth") <= 0
        assert await dialog.get_by_role("button", name="Close").is_visible()

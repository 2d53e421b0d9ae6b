"""The page in a real browser: what a person sees, does and hears of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fairlead.app.questions import itself
from fairlead.testing import Kubelet
from tests.browser.visits import CONFIG, GPU, Visit, find_faults, visiting
from tests.system.rig import Node, running
from tests.system.webclient import HTTP

pytestmark = pytest.mark.browser
pytest.importorskip("playwright.async_api", reason="run: python -m tests.browser.provision")


async def test_devices_resources_and_pods_are_on_the_page(visit: Visit, node: Node):
    await node.kubelet.run_pod("train-llama", {"main": {GPU: 2}})
    await visit.see("train-llama")
    assert await visit.page.locator(".tile").count() == 8
    assert await visit.page.locator("#resources article").count() == 2
    assert await visit.page.locator(".panel").count() == 2  # one for each NUMA node
    assert "2 held, 4 free" in await visit.page.locator("#resources article").filter(has_text="2 held").inner_text()


async def test_a_fault_shows_with_its_cause_and_is_announced(visit: Visit, node: Node):
    await node.steer(do="fail", device=node.ids()[2], xid=79)
    tile = visit.page.locator(f'[data-device="{node.ids()[2]}"]')
    await tile.get_by_text("xid-79").wait_for()
    assert "unhealthy" in await tile.inner_text()
    assert "Device 2 is now" in await visit.page.locator("#news").inner_text()
    assert await visit.page.locator("#facts li.unhealthy").count() >= 1


async def test_what_the_doctor_found_is_below_the_name(visit: Visit, node: Node):
    line = visit.page.locator("#doctor")
    assert not await line.is_visible()
    found = {"errors": 1, "warnings": 2, "codes": ["D16", "D23", "D37"]}
    await node.daemon.questions.examined(found, itself())
    await visit.see("1 error, 2 warnings (D16, D23, D37)")
    assert await line.get_attribute("class") == "bad"
    await visit.page.click("#language")
    await visit.see("1 个错误, 2 个警告")


async def test_what_if_marks_the_devices_that_would_be_given(visit: Visit):
    await visit.page.fill("#count", "3")
    await visit.page.select_option("#resource", GPU)
    await visit.page.click("#ask button")
    await visit.see("It would get 3 slots on 3 devices:")
    await visit.page.locator(".tile.picked").nth(2).wait_for()
    assert await visit.page.locator(".tile.picked").count() == 3
    await visit.page.fill("#count", "7")
    await visit.page.click("#ask button")
    await visit.see("asked to place 7 devices, but only 6 are available")
    assert await visit.page.locator(".tile.picked").count() == 0


async def test_every_view_shows_every_device(visit: Visit):
    await visit.page.click("[data-view=table]")
    assert await visit.page.locator("#devices tbody tr").count() == 8
    await visit.page.click("[data-view=links]")
    assert await visit.page.locator("svg.arcs circle").count() == 8
    await visit.see("every device reaches every other one equally well")


async def test_the_keyboard_alone_opens_and_closes_a_device(visit: Visit):
    tile = visit.page.locator(".tile").first
    await tile.focus()
    await visit.page.keyboard.press("Enter")
    dialog = visit.page.locator("dialog[open]")
    await dialog.wait_for()
    assert "0000:1b:00.0" in await dialog.inner_text()
    await visit.page.keyboard.press("Escape")
    await dialog.wait_for(state="detached")


async def test_focus_stays_on_a_device_while_the_page_changes(visit: Visit, node: Node):
    await visit.page.locator(".tile").nth(4).focus()
    await node.steer(do="fail", device=node.ids()[0], xid=79)
    await visit.see("xid-79")
    focused = await visit.page.evaluate("document.activeElement.dataset.device")
    assert focused == node.ids()[4]


async def test_chinese_and_dark_are_one_click_away_and_remembered(visit: Visit, node: Node):
    await visit.page.click("#language")
    await visit.page.click("#theme")
    await visit.open(node)
    await visit.see("设备")
    assert await visit.page.evaluate("document.documentElement.lang") == "zh-CN"
    assert await visit.page.evaluate("document.documentElement.dataset.theme") == "dark"


async def test_both_languages_have_the_same_words(visit: Visit):
    for words in ("words", "words.happened"):
        keys = await visit.page.evaluate(f"Object.values(WORDS).map((words) => Object.keys({words}).sort().join())")
        assert len(set(keys)) == 1


async def test_a_daemon_that_goes_away_is_said_and_one_that_returns_is_followed(visit: Visit, node: Node):
    assert node.daemon.web is not None
    port = node.daemon.web.port
    await node.stop()
    await visit.see("connection lost, trying again")
    node.write(CONFIG.replace("127.0.0.1:0", f"127.0.0.1:{port}"))
    node.start()
    await node.ready(GPU, 6)
    await visit.page.locator("#live.good").wait_for()


async def test_text_of_others_is_text_and_never_markup(visit: Visit, node: Node):
    await node.steer(
        do="fail", device=node.ids()[1], code="odd", kind="transient", message="<img src=x onerror=alert(1)>"
    )
    await visit.see("<img src=x")
    assert await visit.page.locator("img").count() == 1  # the mark of the page


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("view", ["tiles", "table", "links"])
async def test_axe_finds_nothing(chromium: Any, node: Node, view: str, theme: str):
    await node.steer(do="fail", device=node.ids()[2], xid=79)
    await node.until_fact("unhealthy")
    async with visiting(chromium, node, color_scheme=theme, bypass_csp=True) as visit:
        await visit.page.click(f"[data-view={view}]")
        await visit.page.click("#ask button")
        await visit.see("It would get 1 slot")
        assert await find_faults(visit) == []


async def test_a_phone_can_read_it(chromium: Any, node: Node):
    async with visiting(chromium, node, viewport={"width": 390, "height": 800}) as visit:
        wider = await visit.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wider <= 0


async def test_better_links_are_thicker_arcs_and_the_matrix_has_every_pair(
    chromium: Any, kubelet: Kubelet, kubelet_root: Path
):
    async with running(kubelet, kubelet_root, HTTP.replace("h100x8", "dgx1v")) as node:
        await node.ready()
        await node.until_fact("http")
        links = dict(node.daemon.engine.inventory.links.items())
        one, *others = node.ids()
        async with visiting(chromium, node) as visit:
            await visit.page.click("[data-view=links]")
            arcs = visit.page.locator("svg.arcs path")
            await arcs.first.wait_for()
            assert await arcs.count() == len(links) == 28
            assert await visit.page.locator("svg.arcs rect").count() == 0
            width: dict[int, float] = {}
            for title, thick in await arcs.evaluate_all(
                "all => all.map((arc) => [arc.textContent, Number(arc.getAttribute('stroke-width'))])"
            ):
                width[int(title.rpartition(": ")[2])] = thick
            assert set(width) == set(links.values())
            assert len(width) >= 2
            assert [width[score] for score in sorted(width)] == sorted(set(width.values()))
            rows = visit.page.locator("#devices tbody tr")
            assert await rows.count() == 8
            cells = await rows.first.locator("th, td").all_inner_texts()
            own = {frozenset(pair): score for pair, score in links.items()}
            assert cells == ["0", "·", *(str(own[frozenset({one, other})]) for other in others)]


async def test_a_resource_is_not_registered_while_the_kubelet_is_away(visit: Visit, node: Node):
    pills = visit.page.locator("#resources .pill")
    good, warn = visit.page.locator("#resources .pill.good"), visit.page.locator("#resources .pill.warn")
    await good.nth(1).wait_for()
    assert await pills.all_inner_texts() == ["registered", "registered"]
    await node.kubelet.stop()
    await warn.nth(1).wait_for()
    assert all(text.startswith("not registered: ") for text in await pills.all_inner_texts())
    await node.kubelet.start()
    await good.nth(1).wait_for()
    assert await pills.all_inner_texts() == ["registered", "registered"]

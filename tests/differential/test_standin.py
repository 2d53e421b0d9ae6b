"""The stand-in does what a true kubelet did, but for the differences that are listed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fairlead.standin._gen import deviceplugin_v1beta1_pb2 as dp
from tests.differential.compare import RECORDED, Difference, Known, differences, judge, known, recorded
from tests.differential.page import PAGE, render
from tests.differential.plugin import Plugin
from tests.differential.scenarios import SCENARIOS
from tests.differential.stage import Scenario, play
from tests.differential.standin import standin

LISTED = Known("K1", "for a reason", "one", "a look", 2)


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=str)
async def test_the_stand_in_does_what_the_true_kubelet_did(scenario: Scenario, kubelet_root: Path):
    true = recorded(scenario)
    assert true is not None, "record it on a node that is up: python -m tests.differential --record " + scenario.name
    async with standin(kubelet_root, long=scenario.long) as world:
        ours = await play(scenario, world)
    listed = [one for one in known() if one.scenario == scenario.name]
    wrong = judge(differences(scenario.name, true, ours), listed)
    assert not wrong, "\n".join([scenario.name, *wrong])


async def test_the_ids_of_a_scenario_about_health_are_its_own(kubelet_root: Path, monkeypatch: pytest.MonkeyPatch):
    """A kubelet finds the pod of a changed device by the id alone: with equal ids it may tell another pod."""
    published: list[set[str]] = []
    publish = Plugin.publish

    def listen(plugin: Plugin, *devices: dp.Device) -> None:
        published[-1] |= {one.ID for one in devices}
        publish(plugin, *devices)

    monkeypatch.setattr(Plugin, "publish", listen)
    for turn in range(2):
        published.append(set())
        async with standin(kubelet_root / str(turn), long=False) as world:
            await play(SCENARIOS["health-in-the-status-follows-the-list"], world)
    first, second = published
    assert first
    assert not first & second


def test_nothing_is_recorded_or_listed_of_a_scenario_that_is_gone():
    told = {name for file in RECORDED.glob("*.json") for name in json.loads(file.read_text())}
    assert told | {one.scenario for one in known()} <= set(SCENARIOS)


def test_the_page_tells_the_known_differences():
    assert PAGE.read_text() == render(PAGE.read_text()), "run: python -m tests.differential.page"


def test_a_difference_that_is_listed_is_allowed():
    assert judge(differences("one", [["a look", 1]], [["a look", 2]]), [LISTED]) == []


@pytest.mark.parametrize(
    ("kubelet", "standin", "told"),
    [
        ([["a look", 1], ["another", 1]], [["a look", 2], ["another", 2]], "another"),
        ([["a look", 1]], [["a look", 3]], "K1"),
        ([["a look", 1]], [["a look", 1]], "no longer"),
        ([["a look", 1], ["more", 1]], [["a look", 2]], "more"),
    ],
    ids=["not listed", "another one than is listed", "listed but gone", "a look that is missing"],
)
def test_any_other_difference_is_told(kubelet: list[list[object]], standin: list[list[object]], told: str):
    (wrong,) = judge(differences("one", kubelet, standin), [LISTED])
    assert told in wrong


def test_a_difference_says_what_each_of_them_did():
    (found,) = differences("one", [["a look", 1]], [["a look", 2]])
    assert found == Difference("one", "a look", 1, 2)

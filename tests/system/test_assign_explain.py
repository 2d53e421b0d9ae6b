"""A scheduler chose the card: `explain` says which pod a request would be for, on which card, and why no other."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from tests.system.desk import DIALECTS, GPUSHARE, Desk, Dialect, desk
from tests.system.process import fairlead

from fairlead.app.questions import itself
from fairlead.observe.explanation import Assignment, Explanation, PodReason
from fairlead.testing import Kubelet


async def explained(at: Desk, count: int) -> tuple[Explanation, Assignment]:
    request = {"resource": at.dialect.resource, "count": count}
    answer = (await at.node.daemon.questions.explain(request, itself()))()
    assert answer.assignment is not None
    return answer, answer.assignment


async def seen(at: Desk, count: int, pod: str) -> tuple[Explanation, Assignment]:
    """Once the daemon's watch has brought the pods."""
    async with asyncio.timeout(20):
        while (found := await explained(at, count))[1].pod != pod:  # noqa: ASYNC110 - the answer has no event
            await asyncio.sleep(0.01)
    return found


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
async def test_the_pod_of_a_request_its_card_and_why_no_other(dialect: Dialect, kubelet: Kubelet, kubelet_root: Path):
    async with desk(dialect, kubelet, kubelet_root) as at:
        at.write("astray", {"main": 4}, at.promise(1) | {dialect.device: "no-such-card"})
        at.write("large", {"main": 9}, at.promise(3))
        answer, assignment = await explained(at, 5)
        assert not answer.slots
        at.write("train", {"main": 5}, at.promise(2))
        answer, assignment = await seen(at, 5, "default/train")
        assert (assignment.container, assignment.annotation) == ("main", dialect.device)
        assert assignment.devices == (at.cards[2],)
        assert assignment.reason == ""
        assert [row.picked for row in answer.devices] == [0, 0, 5, 0]
        assert {at.offered.by_id[slot].device for slot in answer.slots} == {at.cards[2]}  # type: ignore[index]
        assert set(assignment.others) == {
            PodReason("default/astray", "its next container, main, asks for 4"),
            PodReason("default/large", "its next container, main, asks for 9"),
        }
        # The pod that comes first cannot be served: the request would be refused with its fault.
        answer, assignment = await explained(at, 4)
        assert (assignment.pod, answer.slots) == ("", ())
        assert "default/astray: its annotation" in assignment.reason
        assert "no-such-card" in assignment.reason
        # What really happens is what was explained.
        pod = await at.admit("train", {"main": 5})
        assert at.told(pod) == 2


async def test_the_command_shows_it_as_a_table_and_as_json(kubelet: Kubelet, kubelet_root: Path):
    async with desk(GPUSHARE, kubelet, kubelet_root) as at:
        at.write("train", {"main": 5}, at.promise(2))
        at.write("other", {"main": 3}, at.promise(1))
        await seen(at, 5, "default/train")
        await seen(at, 3, "default/other")
        socket = at.node.daemon.loaded.config.status.socket
        args = ("explain", GPUSHARE.resource, "--socket", socket)
        code, out, _ = await fairlead(*args, "-n", "5")
        assert code == 0, out
        assert "5 x 1 GiB of aliyun.com/gpu-mem would be for container main of default/train," in out
        assert "on device 2, by its annotation ALIYUN_COM_GPU_MEM_IDX:" in out
        assert "default/other  its next container, main, asks for 3" in out
        code, out, _ = await fairlead(*args, "-n", "5", "--json")
        assignment = json.loads(out)["assignment"]
        assert (assignment["pod"], assignment["devices"]) == ("default/train", [at.cards[2]])
        code, out, _ = await fairlead(*args, "-n", "7")
        assert code == 1
        assert "would be refused: no pod asks for 7; default/train asks for 5" in out

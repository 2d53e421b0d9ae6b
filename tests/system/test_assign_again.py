"""What the kubelet gave to a container and took back is free at once, whatever the API server says of its pod."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.system.desk import DIALECTS, Dialect, desk

from fairlead.testing import Kubelet

dialects = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)


@dialects
async def test_a_card_that_came_to_nothing_is_free_for_the_next_pod(
    dialect: Dialect, kubelet: Kubelet, kubelet_root: Path
):
    async with desk(dialect, kubelet, kubelet_root) as at:
        # Somebody whom the API server does not know takes the whole card in the name of `first`, and is gone again.
        at.write("first", {"main": 16}, at.promise(1))
        stray = await kubelet.run_pod("stray", {"main": {dialect.resource: 16}})
        assert at.told(stray) == 1
        await kubelet.delete_pod(stray)
        pod = await at.bind("second", {"main": 16}, 1)
        assert pod.phase == "Running", pod.message
        assert (at.told(pod), at.lies_on(pod)) == (1, {1})

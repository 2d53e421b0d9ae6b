"""The short form of the kills. `python -m tests.campaign.kills` is the long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaign.kills import run


@pytest.mark.timeout(300)  # processes, in real time; a busy machine takes longer
async def test_pods_and_devices_outlive_a_daemon_that_is_killed(kubelet_root: Path) -> None:
    await run(kubelet_root, kills=6, seed=3)

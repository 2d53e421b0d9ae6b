"""NVIDIA's plugin has the conformance card that is written down of it."""

from __future__ import annotations

import pytest

from tests.cards import differences
from tests.cards.plays import nvidia
from tests.peers.nvidia.place import needs_root

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.go,
    pytest.mark.timeout(900),
    pytest.mark.xdist_group("private-mount"),  # one mount point, and tests that look whether it is gone
    pytest.mark.skipif(needs_root() is not None, reason=str(needs_root())),
]


async def test_the_card_of_nvidias_plugin_is_the_one_that_is_written_down():
    assert differences("nvidia", await nvidia()) == {}

"""Upstream's sample plugin has the card that is written down of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cards import differences
from tests.cards.plays import sample

pytestmark = [pytest.mark.conformance, pytest.mark.go, pytest.mark.timeout(900)]

LITTER = [Path("/tmp/Dev-1"), Path("/tmp/Dev-2")]  # what the sample makes of an Allocate


@pytest.fixture
def no_litter() -> Iterator[None]:
    ours = [path for path in LITTER if not path.exists()]
    yield
    for path in ours:
        path.unlink(missing_ok=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="the sample hard-codes its directory, and mounting over it takes root")
@pytest.mark.usefixtures("no_litter")
@pytest.mark.xdist_group("private-mount")  # one mount point, and tests that look whether it is gone
async def test_the_card_of_the_sample_plugin_is_the_one_that_is_written_down():
    assert differences("sample", await sample()) == {}

"""The cookbook's entries are entries, and every preset is in it."""

from __future__ import annotations

import re

import pytest
from tests.docs.blocks import ROOT

from fairlead.backends.paths.presets import options_of
from fairlead.backends.paths.spec import Preset
from fairlead.kit import documents

_PAGE = (ROOT / "docs/guide/any-device-path.md").read_text()
_TABLE = _PAGE.split("## Cookbook\n", 1)[1].split("\n## ", 1)[0]
ENTRIES = re.findall(r"`(\{.*?\})`(?= \||,)", _TABLE)


@pytest.mark.parametrize("entry", ENTRIES)
def test_an_entry_of_the_cookbook_is_one(entry: str):
    assert options_of({"devices": [documents.parse(entry, "the cookbook")]}).devices


def test_every_preset_is_in_the_cookbook():
    assert {preset for preset in Preset if any(f"preset: {preset}" in entry for entry in ENTRIES)} == set(Preset)

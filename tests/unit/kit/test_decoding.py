"""Strict decoding: sizes, durations, and text that is none."""

from __future__ import annotations

import pytest

from fairlead.backends.sim.library import load_fleet
from fairlead.kit.decoding import Bytes, Seconds, convert
from fairlead.model.errors import ConfigError


def test_half_a_surrogate_pair_is_refused_in_words() -> None:
    with pytest.raises(ConfigError, match=r"f\.yaml: holds half of a surrogate pair"):
        convert({"fleet": "\ud800"}, dict[str, int], "f.yaml")


@pytest.mark.parametrize("name", ["\x00", "\ud800"])
def test_a_fleet_name_that_no_file_can_have_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="no fleet"):
        load_fleet(name)


@pytest.mark.parametrize("kind", [Bytes, Seconds])
def test_a_number_too_long_for_a_number_is_refused(kind: type[Bytes | Seconds]) -> None:
    with pytest.raises(ValueError, match="expected a"):
        kind.parse("9" * 400)

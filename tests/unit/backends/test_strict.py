"""Reading YAML without the C library: the same answers, and no traceback."""

from __future__ import annotations

import pytest
import yaml

from fairlead.backends.sim.library import load_fleet
from fairlead.backends.strict import Bytes, Seconds, convert, parse_yaml
from fairlead.model.errors import ConfigError


@pytest.fixture(autouse=True)
def plain_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(yaml, "CSafeLoader", raising=False)


def test_a_document_is_read_with_its_merges() -> None:
    assert parse_yaml("a: &x {b: 1}\nc: {<<: *x, d: 2}", "f.yaml")["c"] == {"b": 1, "d": 2}


def test_a_key_given_twice_is_refused_with_its_line() -> None:
    with pytest.raises(ConfigError, match=r"f\.yaml: line 3, column 1: the key 'a' is given twice"):
        parse_yaml("a: 1\nb: 2\na: 3\n", "f.yaml")


def test_a_document_nested_too_deeply_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"f\.yaml: it is nested too deeply"):
        parse_yaml("[" * 3000 + "]" * 3000, "f.yaml")


def test_code_is_not_run() -> None:
    with pytest.raises(ConfigError, match="could not determine a constructor"):
        parse_yaml("!!python/object/apply:os.getpid []", "f.yaml")


def test_half_a_surrogate_pair_is_refused_in_words() -> None:
    raw = parse_yaml('fleet: "\\ud800"', "f.yaml")
    with pytest.raises(ConfigError, match=r"f\.yaml: holds half of a surrogate pair"):
        convert(raw, dict[str, int], "f.yaml")


@pytest.mark.parametrize("name", ["\x00", "\ud800"])
def test_a_fleet_name_that_no_file_can_have_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="no fleet"):
        load_fleet(name)


@pytest.mark.parametrize("kind", [Bytes, Seconds])
def test_a_number_too_long_for_a_number_is_refused(kind: type[Bytes | Seconds]) -> None:
    with pytest.raises(ValueError, match="expected a"):
        kind.parse("9" * 400)

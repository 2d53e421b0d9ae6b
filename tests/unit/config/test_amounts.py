"""Amounts in the configuration, and every way to get them wrong."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.config.load import build
from fairlead.model.errors import ConfigError
from fairlead.policy.offering.amounts import Amount
from fairlead.policy.offering.rules import Selector


def _build(*amounts: dict[str, Any], **more: Any) -> tuple[Amount, ...]:
    raw = {"backends": [{"kind": "sim"}], "rules": [{"resource": "a.com/gpu"}], "amounts": list(amounts), **more}
    return build(raw, "here").amounts


def test_amounts_are_read():
    core = {"resource": "a.com/core", "perDevice": 100, "match": {"vendor": "nvidia"}, "adopt": True}
    found = _build(core, {"resource": "a.com/licence", "total": "1k"}, {"resource": "a.com/x", "total": 0})
    assert found == (
        Amount(found[0].resource, Selector(vendors=("nvidia",)), per_device=100, adopt=True),
        Amount(found[1].resource, total=1000),
        Amount(found[2].resource),
    )


def test_amounts_are_enough_without_a_rule():
    assert _build({"resource": "a.com/core", "perDevice": 1}, rules=[])


@pytest.mark.parametrize(
    ("amount", "where", "reason"),
    [
        ({"resource": "core", "perDevice": 1}, "amounts[0].resource", "it needs a vendor domain"),
        ({"resource": "a.com/gpu", "perDevice": 1}, "amounts[0].resource", "a rule offers a.com/gpu with devices"),
        ({"resource": "a.com/core"}, "amounts[0]", "needs either perDevice"),
        ({"resource": "a.com/core", "perDevice": 1, "total": 1}, "amounts[0]", "needs either perDevice"),
        ({"resource": "a.com/core", "total": "-1"}, "amounts[0].total", "it is negative"),
        ({"resource": "a.com/core", "total": "x"}, "amounts[0].total", "it is not a quantity"),
        ({"resource": "a.com/core", "perDevice": -1}, "amounts[0].perDevice", ">= 0"),
        ({"resource": "a.com/core", "perDevice": 1, "match": {"memory": "big"}}, "amounts[0].match.memory", "range"),
        ({"resource": "a.com/core", "perdevice": 1}, "amounts[0].perdevice", "did you mean 'perDevice'"),
    ],
)
def test_a_fault_says_where_and_what(amount: dict[str, Any], where: str, reason: str):
    with pytest.raises(ConfigError) as caught:
        _build(amount)
    assert f"here: {where}: " in str(caught.value)
    assert reason in str(caught.value)

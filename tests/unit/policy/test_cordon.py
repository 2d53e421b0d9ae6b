"""A cordon withdraws what is usable, hides no fault, and ends with its time."""

from __future__ import annotations

import pytest

from fairlead.model.device import Device
from fairlead.model.errors import UsageError
from fairlead.model.health import Cause, CauseKind, Condition, Health
from fairlead.model.inventory import ALL_HEALTHY, Conditions
from fairlead.policy.cordon import CODE, REASON_MAX, apply_cordons, condition_of, is_over, make_cordon

DEVICES = (Device("a"), Device("b"), Device("a-part", parent="a"))
CORDONED = {"a": condition_of(make_cordon("a", "fan", 1000.0, None), 1000.0, 50.0)}


def test_a_cordon_withdraws_the_device_and_its_partitions_and_no_other():
    found = apply_cordons(ALL_HEALTHY, DEVICES, CORDONED)
    assert found.unhealthy == {"a", "a-part"}
    assert found.of("a") == Condition(Health.UNHEALTHY, Cause(CODE, CauseKind.PERMANENT, "fan"), 50.0)


def test_a_suspect_device_is_withdrawn_too():
    suspect = Conditions({"a": Condition(Health.SUSPECT, Cause("x", CauseKind.TRANSIENT))})
    cause = apply_cordons(suspect, DEVICES, CORDONED).of("a").cause
    assert cause
    assert cause.code == CODE


@pytest.mark.parametrize("health", [Health.UNHEALTHY, Health.PROBATION])
def test_a_cordon_hides_no_fault(health: Health):
    fault = Condition(health, Cause("xid-79", CauseKind.PERMANENT), 7.0)
    found = apply_cordons(Conditions({"a": fault}), DEVICES, CORDONED)
    assert found.of("a") == fault
    assert found.unhealthy == {"a", "a-part"}


def test_without_cordons_that_count_the_conditions_are_the_same_object():
    assert apply_cordons(ALL_HEALTHY, DEVICES, {}) is ALL_HEALTHY
    assert apply_cordons(ALL_HEALTHY, DEVICES[1:2], CORDONED) is ALL_HEALTHY


def test_a_cordon_is_over_at_its_end_and_one_without_an_end_never():
    cordon = make_cordon("a", " fan ", 1000.0, 60.0)
    assert cordon.reason == "fan"
    assert str(cordon) == "fan (until 1970-01-01T00:17:40Z)"
    assert not is_over(cordon, 1059.9)
    assert is_over(cordon, 1060.0)
    assert not is_over(make_cordon("a", "fan", 1000.0, None), 1e10)


def test_since_when_counts_from_before_the_boot():
    cordon = make_cordon("a", "fan", 1000.0, None)
    assert condition_of(cordon, now_s=5000.0, monotonic_s=10.0).since_s == -3990.0


@pytest.mark.parametrize("reason", ["", "  ", "two\nlines", "\x1b[31mred", "x" * (REASON_MAX + 1), "\udc80"])
def test_a_reason_that_cannot_be_shown_is_refused(reason: str):
    with pytest.raises(UsageError, match="reason"):
        make_cordon("a", reason, 1000.0, None)


@pytest.mark.parametrize("for_s", [0.0, -1.0, float("inf"), float("nan"), 1e12])
def test_a_time_that_cannot_be_kept_is_refused(for_s: float):
    with pytest.raises(UsageError, match="--for 2h"):
        make_cordon("a", "fan", 1000.0, for_s)

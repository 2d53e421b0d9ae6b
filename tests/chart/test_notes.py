"""What helm says after an installation: it warns of values that do not do what they seem to."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chart import helm
from tests.chart.foreign import AMDS, NVIDIAS

UNLABELLED = "has no effect: this chart does not install node-feature-discovery, and nodes stay unlabelled."
SEES_LESS = "securityContext is not privileged"
PRIVILEGED = "The device plugin's container is privileged"
PLAIN: dict[str, Any] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}  # that of AMD's chart
WARNED: list[tuple[dict[str, Any], str]] = [
    ({"nfd": {"enabled": True}}, f"! nfd.enabled {UNLABELLED}"),
    ({"dialect": "amd", "amd": {"nfd": {"enabled": True}}}, f"! amd.nfd.enabled {UNLABELLED}"),
    ({"dialect": "amd", "amd": {"securityContext": PLAIN}}, f"! amd.{SEES_LESS},"),
    ({"dialect": "amd", "securityContext": PLAIN}, f"! {SEES_LESS},"),
    ({"dialect": "amd", "amd": {"securityContext": {"privileged": False}}}, f"! amd.{SEES_LESS},"),
    ({"compatWithCPUManager": True, "securityContext": PLAIN}, f"! {SEES_LESS},"),
    ({"rbac": {"create": False}, "dialect": "gpushare"}, "! rbac.create is false. Give the account fairlead"),
]
QUIET: dict[str, dict[str, Any]] = {
    "by default": {},
    "NVIDIA's values": NVIDIAS,
    "no values below nfd": {"nfd": None, "amd": {"nfd": None}},
    "turned off": {"nfd": {"enabled": False}, "amd": {"nfd": {"enabled": False}}},
    "amd": {"dialect": "amd"},
    "amd, privileged": {"dialect": "amd", "amd": {"securityContext": {"privileged": True}}},
    "amd, privileged at the top": {"dialect": "amd", "securityContext": {"privileged": True}},
    "another dialect": {"securityContext": PLAIN, "amd": {"securityContext": PLAIN}},
    "without the plugin": {
        "dialect": "amd",
        "amd": {"labeller": {"enabled": True}, "securityContext": PLAIN},
        "devicePlugin": {"enabled": False},
    },
}


@pytest.mark.parametrize(("values", "text"), WARNED, ids=[str(values) for values, _ in WARNED])
def test_a_value_that_does_not_do_what_it_seems_to_is_warned_of(values: dict[str, Any], text: str):
    assert [line for line in helm.notes(values).splitlines() if line.startswith(text)]


@pytest.mark.parametrize("values", QUIET.values(), ids=QUIET)
def test_nothing_is_warned_of_without_a_reason(values: dict[str, Any]):
    said = helm.notes(values)
    assert UNLABELLED not in said
    assert SEES_LESS not in said


def test_amds_own_values_are_warned_of():
    assert f"! amd.{SEES_LESS}" in helm.notes({"dialect": "amd", "amd": AMDS})


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"dialect": "amd"}, True),
        ({"dialect": "amd", "amd": {"securityContext": {"privileged": True}}}, True),
        ({"dialect": "amd", "amd": {"securityContext": PLAIN}}, False),
        ({"dialect": "amd", "devicePlugin": {"enabled": False}}, False),
        ({}, False),
    ],
    ids=["by default", "of one's own", "not privileged", "without the plugin", "nvidia"],
)
def test_a_privileged_container_is_told_where_there_is_one(values: dict[str, Any], said: bool):
    assert (PRIVILEGED in helm.notes(values)) is said


def test_rights_are_asked_for_an_account_that_exists():
    assert "rbac.create" not in helm.notes(
        {"rbac": {"create": False}, "dialect": "gpushare", "devicePlugin": {"enabled": False}}
    )

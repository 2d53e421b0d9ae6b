"""What helm says after an installation: it warns of values that do not do what they seem to."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from tests.chart import helm
from tests.chart.foreign import AMDS, NVIDIAS
from tests.chart.shapes import CASES, Object

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


@pytest.mark.parametrize("case", CASES)
def test_without_roles_every_right_that_a_program_needs_is_named_with_its_account(case: str):
    """What is asked for is what the chart would grant: all accounts, and nothing more."""
    granted_here = wanted(helm.objects(CASES[case]))
    values = {**CASES[case], "rbac": {**CASES[case].get("rbac", {}), "create": False}}
    assert asked_for(helm.notes(values)) == granted_here
    assert asked_for(helm.notes(CASES[case])) == {}


def wanted(made: list[Object]) -> dict[str, set[tuple[str, str]]]:
    """The rules and roles of each account, with the namespace that they hold in."""
    roles = {(one["kind"], one["metadata"]["name"]): one for one in made if one["kind"] in {"Role", "ClusterRole"}}
    found: dict[str, set[tuple[str, str]]] = {}
    for one in made:
        if one["kind"] not in {"RoleBinding", "ClusterRoleBinding"}:
            continue
        account, role = one["subjects"][0]["name"], one["roleRef"]
        place = one["metadata"].get("namespace", "")
        own = roles.get((role["kind"], role["name"]))
        rules = [{"name": role["name"]}] if own is None else own["rules"]
        found.setdefault(account, set()).update((place, line) for line in lines(rules))
    return found


def lines(rules: list[Object]) -> list[str]:
    """Each verb by itself. The name of a lease is left out: a person may allow one lease or all."""
    return [
        one.get("name", f"{group} {resource} {verb}")
        for one in rules
        for group in one.get("apiGroups", [""])
        for resource in one.get("resources", [""])
        for verb in one.get("verbs", [""])
    ]


def asked_for(notes: str) -> dict[str, set[tuple[str, str]]]:
    found: dict[str, set[tuple[str, str]]] = {}
    for account, body in re.findall(
        r"^! rbac.create .* account (\S+) the rights of: .*\n((?:  .*\n?)*)", notes, re.MULTILINE
    ):
        rights = found.setdefault(account, set())
        for head, rules in re.findall(r"^  ([A-Z].*(?:\n  [a-z].*)*):\n((?:  (?:-|  ).*\n?)+)", body, re.MULTILINE):
            named = re.search(r"in the namespace (\S+)$", head, re.IGNORECASE)
            rights |= {(named[1] if named else "", line) for line in lines(yaml.safe_load(rules))}
            rights |= {("", role) for role in re.findall(r"system:[a-z-]*\b", head)}
            rights |= {("kube-system", role) for role in re.findall(r"extension-\S+", head)}
    return found


def test_rights_are_asked_for_an_account_that_exists():
    assert "rbac.create" not in helm.notes(
        {"rbac": {"create": False}, "dialect": "gpushare", "devicePlugin": {"enabled": False}}
    )

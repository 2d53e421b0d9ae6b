"""Memory in a rule: what people may write, what it means, and what is refused."""

from __future__ import annotations

import pytest

from fairlead.config.load import parse
from fairlead.model.errors import ConfigError
from fairlead.model.resource import MemoryTerms, Strategy
from fairlead.policy.offering.memory import MIB, PER_CONTAINER_MAX
from fairlead.policy.offering.rules import Rule

CONFIG = "backends: [{kind: sim}]\nrules: [{resource: a.example/memory, %s}]\n"


def rule(text: str) -> Rule:
    return parse(CONFIG % text, "f").rules[0]


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("memory: {}", MemoryTerms(MIB, grow=True)),
        ("memory: {unit: auto, straddle: true}", MemoryTerms(MIB, grow=True, straddle=True)),
        ("memory: {unit: 256MiB}", MemoryTerms(256 * MIB, grow=False)),
        ("memory: {unit: 1GiB, grow: true}", MemoryTerms(1024 * MIB, grow=True)),
        ("memory: {unit: 1048576}", MemoryTerms(MIB, grow=False)),
    ],
)
def test_units(text: str, share: MemoryTerms):
    assert rule(text).terms.memory == share


def test_memory_brings_settings_that_suit_it():
    made = rule("memory: {}")
    assert (made.terms.strategy, made.terms.per_container) == (Strategy.PACK, PER_CONTAINER_MAX)
    assert made.terms.extra.env["FAIRLEAD_MEMORY_MIB_{resource}"] == "{memoryMib}"
    own = rule('memory: {}, placement: spread, perContainer: 40000, env: {"LIMIT_{n}": "{memoryMib}m"}')
    assert (own.terms.strategy, own.terms.per_container) == (Strategy.SPREAD, 40000)
    assert own.terms.extra.env == {"LIMIT_{n}": "{memoryMib}m"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("memory: {unit: some}", "rules[0].memory.unit: 'some' is no unit. Write auto, or whole MiB"),
        ("memory: {unit: 1500KiB}", "'1500KiB' is no unit"),
        ("memory: {unit: 0}", "0 is no unit"),
        ("memory: {unit: 1GB}", "'1GB' is no unit"),
        ("memory: {unit: -1}", "-1 is no unit"),
        ("memory: {units: 1GiB}", "unknown key 'units'; did you mean 'unit'?"),
        ("memory: {}, replicas: 2", "has both replicas and memory"),
        ("memory: {}, env: {X: '{slots}'}", "thousands of units are too many"),
        ("env: {X: '{memoryMib}'}", "which needs a rule with memory"),
        ("env: {'X_{n}': 'a'}", "is not a name for an environment variable"),
        ("memory: {}, env: {'{n}X': 'a'}", "is not a name for an environment variable"),
    ],
)
def test_each_fault_is_named(text: str, words: str):
    with pytest.raises(ConfigError) as caught:
        rule(text)
    assert words in str(caught.value)

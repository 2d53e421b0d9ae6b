"""Assignment in a rule: what people may write, what it means, and what is refused, with the place and the cure."""

from __future__ import annotations

import pytest

from fairlead.config.load import parse
from fairlead.model.assign import Assign, NodeEnv
from fairlead.model.errors import ConfigError

CONFIG = """
backends: [{kind: sim}]
cluster: {node: n1}
rules:
  - resource: a.example/memory
    memory: {}
    %s
"""


def assign(text: str) -> Assign:
    made = parse(CONFIG % f"assign: {{device: a.example/card, {text}}}", "f").rules[0].terms.assign
    assert made is not None
    return made


def test_little_is_enough():
    assert assign("") == Assign(device="a.example/card")


def test_all_of_it():
    made = assign(
        "by: id, perContainer: a.example/each, time: a.example/time, timeRequired: true, assigned: a.example/assigned, "
        "unassigned: ['', 'no'], needs: [a.example/port], wait: 3s, marks: {a.example/assigned: 'yes'}, "
        "onlyDevice: true, strict: true, nodeLock: lock, "
        "nodeEnv: [{label: a.example/label, value: x, env: {A: b}}]"
    )
    assert made == Assign(
        device="a.example/card",
        by_id=True,
        per_container="a.example/each",
        time="a.example/time",
        time_required=True,
        assigned="a.example/assigned",
        unassigned=frozenset({"", "no"}),
        needs=("a.example/port",),
        wait_s=3.0,
        marks={"a.example/assigned": "yes"},
        only_device=True,
        strict=True,
        node_lock="lock",
        node_env=(NodeEnv("a.example/label", "x", {"A": "b"}),),
    )
    # These annotations of pods are kept in memory, and no others.
    names = ("card", "each", "time", "assigned", "port")
    assert made.keys == {f"a.example/{name}" for name in names}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("by: name", "rules[0].assign.by"),
        ("wait: 31s", "rules[0].assign.wait: 31 s is too long: the kubelet admits no pod meanwhile. Give 30 s or less"),
        ("wait: -1s", "rules[0].assign.wait"),
        ("timeRequired: true", "rules[0].assign.timeRequired: it has no effect without time"),
        ("time: 'a b'", "rules[0].assign.time: 'a b' is no key of an annotation, such as example.com/gpu-index"),
        ("needs: ['']", "rules[0].assign.needs[0]: '' is no key of an annotation"),
        ("needs: [a, 'b/c/d']", "rules[0].assign.needs[1]: 'b/c/d' is no key"),
        ("marks: {'-x': y}", "rules[0].assign.marks: '-x' is no key"),
        ("nodeLock: 'UP.example/x'", "rules[0].assign.nodeLock: 'UP.example/x' is no key"),
        ("nodeEnv: [{label: 'é', value: x, env: {}}]", "rules[0].assign.nodeEnv[0].label: 'é' is no key"),
        ("nodeEnv: [{label: a}]", "rules[0].assign.nodeEnv[0]"),
        ("assinged: x", "unknown key 'assinged'; did you mean 'assigned'?"),
        ("unassigned: false", "rules[0].assign.unassigned"),
    ],
)
def test_each_fault_is_named(text: str, words: str):
    with pytest.raises(ConfigError) as caught:
        assign(text)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("assign: {}", "rules[0].assign"),
        ("assign: {device: ''}", "rules[0].assign.device: '' is no key of an annotation"),
        ("env: {X: '{podName}'}", "rules[0].env: 'X' names {podName}, which needs a rule with assign"),
        ("annotations: {X: '{annotation:a}'}", "rules[0].annotations: 'X' names {annotation:}, which needs a rule"),
        (
            "assign: {device: d}\n    env: {X: '{annotation:port}'}",
            "rules[0].assign.needs: X shows 'port', which is not listed here. Add it",
        ),
    ],
)
def test_rules_that_do_not_fit_together(rule: str, words: str):
    with pytest.raises(ConfigError) as caught:
        parse(CONFIG % rule, "f")
    assert words in str(caught.value)


def test_who_got_what_must_be_readable():
    with pytest.raises(ConfigError) as caught:
        parse("kubelet: {podResources: ''}\n" + CONFIG % "assign: {device: d}", "f")
    assert "kubelet.podResources: it is empty, but a rule has assign: who got what is read there" in str(caught.value)

"""JSON patches: escaped as RFC 6901 says, and exactly what was planned. Merges: as RFC 7386 says."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.apiserver.store import apply_ops

from fairlead.cluster.nodes import Node
from fairlead.cluster.patches import drop, json_patch, merge, pointer, put
from fairlead.fronts.nodestatus.amounts import SIGNED, patch_of, posted_on
from fairlead.policy.offering.amounts import needed_change

_words = st.lists(st.text(alphabet="ab/~01", min_size=1, max_size=6), min_size=1, max_size=3)


@given(_words)
def test_any_words_make_a_pointer_that_leads_back_to_them(words: list[str]):
    there = [word.replace("~1", "/").replace("~0", "~") for word in pointer(*words).split("/")[1:]]
    assert there == words


@given(st.text(min_size=1), st.text())
def test_a_patch_puts_and_drops_any_key(key: str, value: str):
    patch = json_patch([put(value, "status", key), put("x", "status", key + "~"), drop("status", key)])
    thing = apply_ops({"status": {}}, json.loads(patch.encode()))
    assert thing == {"status": {key + "~": "x"}}


_names = st.sampled_from(["example.com/a", "example.com/b", "other.org/c~d", "cpu"])
_amounts = st.dictionaries(_names, st.integers(0, 3).map(str))
_signatures = st.dictionaries(st.sampled_from(["me", "other"]), st.lists(_names, unique=True, min_size=1).map(",".join))


@given(_amounts, _amounts, _signatures, st.dictionaries(_names, st.integers(0, 3)), st.booleans())
def test_a_patch_makes_the_node_what_was_wanted(
    capacity: dict[str, str],
    allocatable: dict[str, str],
    signatures: dict[str, str],
    wanted: dict[str, int],
    adopting: bool,
):
    annotations = {SIGNED + who: names for who, names in signatures.items()}
    thing: dict[str, Any] = {"metadata": {"name": "n1", "resourceVersion": "5"}, "status": {}}
    for place, content in (("capacity", capacity), ("allocatable", allocatable)):
        thing["status"] |= {place: content} if content else {}
    thing["metadata"] |= {"annotations": annotations} if annotations else {}
    adopt = frozenset(wanted) if adopting else frozenset()
    for _ in range(2):  # twice: with two signatures for one name the second look settles it
        node = msgspec.convert(thing, Node)
        change = needed_change(wanted, posted_on(node), "me", adopt)
        thing = apply_ops(thing, json.loads(patch_of(node, change, "me").encode()))
    posted = posted_on(msgspec.convert(thing, Node))
    assert needed_change(wanted, posted, "me", adopt).empty
    for name in wanted.keys() - needed_change(wanted, posted, "me", adopt).refused.keys():
        assert (posted.amount(name), posted.owners[name]) == (wanted[name], "me")


@pytest.mark.parametrize(
    ("target", "patch", "made"),
    [  # from RFC 7386, appendix A
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_a_merge_is_that_of_the_standard(target: Any, patch: Any, made: Any):
    assert merge(target, patch) == made

"""Compares an answer of ours with one of NVIDIA's plugin: equal, another on purpose, or a fault.

Knows nothing of where the answers come from: a recording, or NVIDIA's own program beside ours.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from fairlead.model.inventory import Links
from tests.recorded import judge
from tests.vectors.types import Allocation, Preference

ANNOTATION = "nvidia-device-plugin_"


class Verdict(msgspec.Struct):
    differences: set[str] = msgspec.field(default_factory=set)  # that are meant
    faults: list[str] = []  # that nobody meant
    counts: Counter[str] = msgspec.field(default_factory=Counter)


class Offered(msgspec.Struct, frozen=True):
    """What our list holds, as far as a judgement needs it."""

    resource: str
    slots: list[str]
    links: Links
    packed: bool = False


# --- Allocate ---------------------------------------------------------------------------------------------------------


def judge_allocation(verdict: Verdict, offered: Offered, theirs: Allocation, ours: list[Any] | None, why: str) -> None:
    """`ours` None: refused, and why."""
    verdict.counts["allocations"] += 1
    if ours is None:
        if theirs.error is not None:
            return
        if not theirs.request or not all(theirs.request):
            verdict.differences.add("allocate-nothing")
        elif any(len(set(ids)) != len(ids) for ids in theirs.request):
            verdict.differences.add("allocate-twice")
        else:
            verdict.faults.append(f"{offered.resource}: refuses {theirs.request}: {why}")
        return
    if theirs.error is not None:
        verdict.faults.append(f"{offered.resource}: takes {theirs.request}, which NVIDIA's refuses: {theirs.error}")
        return
    answers = [theirs.response, *(variant.get("response") for variant in theirs.variants or ())]
    found = [_unlike(ours, answer) for answer in answers if answer is not None]
    best = min(found, key=lambda one: (one[0] is not None, len(one[1])))
    verdict.differences |= best[1]
    if best[0] is not None:
        verdict.faults.append(f"{offered.resource}: {theirs.request}: {best[0]}")


def _unlike(ours: list[Any], theirs: list[Any]) -> tuple[str | None, set[str]]:
    """What differs beyond what is meant, and which of what is meant."""
    meant: set[str] = set()
    for mine, other in zip(ours, theirs, strict=True):
        keys = mine["annotations"].keys() | other["annotations"].keys()
        if keys and all(ANNOTATION in key for key in keys):
            prefixes = {key.partition(ANNOTATION)[0] for key in keys}
            values = {_words(value) for part in (mine, other) for value in part["annotations"].values()}
            if len(prefixes) != 1 or len(values) != 1:
                return f"annotations {mine['annotations']} and {other['annotations']}", meant
            meant.add("annotation-key")
        elif mine["annotations"] != other["annotations"]:
            return f"annotations {mine['annotations']} and {other['annotations']}", meant
        fault = _unlike_envs(mine["envs"], other["envs"], meant)
        if fault:
            return fault, meant
        for key in ("devices", "mounts", "cdi_devices"):
            one, two = _sorted(mine[key]), _sorted(other[key])
            if one != two and one == sorted(set(two)):
                meant.add("device-once")
            elif one != two and key == "mounts" and not one and all("mps" in text or "shm" in text for text in two):
                meant.add("mps-only-shared")
            elif one != two:
                return f"{key} {one} and {two}", meant
    return None, meant


def _unlike_envs(ours: dict[str, str], theirs: dict[str, str], meant: set[str]) -> str:
    if "CUDA_MPS_PIPE_DIRECTORY" in theirs and "CUDA_MPS_PIPE_DIRECTORY" not in ours:
        meant.add("mps-only-shared")
        theirs = {key: value for key, value in theirs.items() if key != "CUDA_MPS_PIPE_DIRECTORY"}
    if ours == theirs:
        return ""
    if {key: _words(value) for key, value in ours.items()} == {key: _words(value) for key, value in theirs.items()}:
        meant.add("allocate-order")
        return ""
    return f"variables {ours} and {theirs}"


def _words(text: str) -> tuple[str, ...]:
    return tuple(sorted(text.split(",")))


def _sorted(items: list[Any]) -> list[str]:
    texts = []
    for item in items:
        plain = {"name": item} if isinstance(item, str) else item
        texts.append(str(sorted((key, value) for key, value in plain.items() if value not in (False, None, ""))))
    return sorted(texts)


# --- GetPreferredAllocation -------------------------------------------------------------------------------------------


def judge_preference(verdict: Verdict, offered: Offered, theirs: Preference, ours: list[list[str]] | None) -> None:
    """`ours` None: an error, which is a fault always."""
    verdict.counts["preferences"] += 1
    if ours is None:
        verdict.faults.append(f"{offered.resource}: a preference is an error: {theirs.request}")
        return
    slots = set(offered.slots)
    for number, wanted in enumerate(theirs.request):
        chosen = ours[number]
        known = [slot for slot in wanted.available if slot in slots]
        must = [slot for slot in wanted.must_include if slot in slots]
        if judge.is_satisfiable(known, must, wanted.size):
            if not judge.is_lawful(chosen, known, must, wanted.size):
                verdict.faults.append(f"{offered.resource}: {wanted} is answered with {chosen}")
        elif chosen:
            verdict.faults.append(f"{offered.resource}: {wanted} cannot be met and is answered with {chosen}")
        if theirs.response is None:
            verdict.differences.add("prefer-crash" if theirs.crash else "prefer-error")
        elif sorted(chosen) != sorted(other := theirs.response[number]):
            if not judge.is_lawful(other, wanted.available, wanted.must_include, wanted.size):
                verdict.differences.add("prefer-unmet" if not chosen or not slots >= {*other} else "prefer-large")
            else:
                _as_good(verdict, offered, known, must, wanted.size, chosen, other)


def _as_good(
    verdict: Verdict, offered: Offered, known: list[str], must: list[str], size: int, ours: list[str], theirs: list[str]
) -> None:
    """Another set than NVIDIA's must be as good as it."""
    whole = not any("::" in slot or slot.startswith("MIG") for slot in known)
    if whole and len(known) > judge.EXACT_MAX:
        verdict.differences.add("prefer-large")
    elif whole:
        mine, other = (judge.node_value(offered.links, known, size, group) for group in (ours, theirs))
        own, own_other = (judge.own_value(offered.links, group) for group in (ours, theirs))
        if mine < other or (mine == other and 5 * own < 4 * own_other):
            text = f"{size} of {known}: {ours} is worth {mine} with {own}, {theirs} is worth {other} with {own_other}"
            verdict.faults.append(f"{offered.resource}: {text}")
        verdict.differences.add("prefer-tie")
    elif offered.packed:
        if "::" in known[0] and judge.opened(ours, known, offered.slots) > judge.opened(theirs, known, offered.slots):
            verdict.faults.append(f"{offered.resource}: {size} of {known} with {must}: {ours} opens an idle GPU")
        verdict.differences.add("prefer-pack")
    elif judge.is_spread(ours, known, must, offered.slots):
        verdict.differences.add("prefer-spread")
    else:
        verdict.faults.append(f"{offered.resource}: {size} of {known} with {must}: {ours} does not spread")

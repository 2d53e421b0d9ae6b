"""What came of a recording, laid out flat, and where ours may be otherwise: every place by its name.

An outcome is a map from places to values: `exit`, `list count`, `answer 1 NVIDIA_VISIBLE_DEVICES`, `pod default/p1
KEY`, `node capacity NAME`. Two errors count as the same, if ours is one that was meant: its words are our own.
Knows nothing of how ours was asked.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from tests.vectors.sharing import Answer, Case, Listed

Outcome = dict[str, Any]
NOW_NS = "<NOW_NS>"
HOUR_NS = 3600 * 10**9
ENDS = frozenset({"exit", "runs on"})  # places that only a process shows


class Says(msgspec.Struct, frozen=True):
    """An error of ours, with these words in it."""

    words: str

    @property
    def is_meant(self) -> bool:
        """Not one that nobody thought of: those have no code of their own."""
        return self.words.startswith(("FAILED_PRECONDITION: ", "INVALID_ARGUMENT: ", "UNAVAILABLE: "))


class Place(msgspec.Struct, frozen=True):
    """In these recordings, by their numbers, ours has this here. None: nothing, where theirs has something."""

    cases: str
    ours: Mapping[str, Any]


class Difference(msgspec.Struct, frozen=True):
    """A line of the guide, and everywhere that it shows.

    `shown_by`: a test of ours, where the recording that shows theirs is not among those that are played here.
    """

    text: str
    places: tuple[Place, ...] = ()
    shown_by: str = ""


Differences = Mapping[str, Difference]


def number(name: str) -> str:
    return name.partition("-")[0]


# --- Theirs -----------------------------------------------------------------------------------------------------------


def recorded(case: Case) -> Outcome:
    outputs = case.outputs
    outcome: Outcome = {
        "register": registered(case, outputs.register),
        "files left": outputs.files_left_in_plugin_dir,
        "exit": outputs.exit["returncode"],
    }
    if outputs.alive is not None:
        outcome["runs on"] = outputs.alive
    if case.case.endswith("-sighup") and not outputs.answers:
        outcome["ends with SIGHUP"] = True
    if outputs.options is not None:
        outcome["asked for a preference"] = bool(outputs.options.get("get_preferred_allocation_available"))
        outcome["called before a start"] = bool(outputs.options.get("pre_start_required"))
    listed = outputs.list_as_kubelet
    if listed is not None and listed.error is not None:
        outcome["list"] = listed.error["code"]
    elif listed is not None:
        outcome |= {f"list {key}": value for key, value in _recorded_list(listed).items()}
    for index, answer in enumerate(outputs.answers):
        outcome |= _recorded_answer(f"answer {index}", answer)
    for pod, noted in outputs.final_pod_annotations.items():
        outcome |= {f"pod {pod} {key}": value for key, value in noted.items()}
    final = outputs.final_node if outputs.final_node is not None else outputs.final_node_status or []
    for node in final:
        if "annotations" in node:
            outcome |= {f"node annotation {key}": value for key, value in (node["annotations"] or {}).items()}
        outcome |= _amounts("after", node)
        outcome |= _amounts("node", _running(case) or node)
    return outcome


def registered(case: Case, requests: Iterable[Any]) -> list[list[str]]:
    """Each registration. With a kubelet that appears late a retry may come just before the news of it: one or two."""
    found = [[one.resource_name, one.endpoint, one.version] for one in requests]
    return found[:1] if case.inputs.kubelet_appears_after_s is not None else found


def _running(case: Case) -> dict[str, Any]:
    """The node's status as mini left it before it was ended; the others change nothing at their end."""
    for request in reversed(case.outputs.start_api_requests):
        if request["method"] == "PUT" and request["status"] == 200:
            status: dict[str, Any] = request["body"]["status"]
            return status
    return {}


def _recorded_answer(place: str, answer: Answer) -> Outcome:
    if answer.rpc:
        if answer.error is not None:
            return {place: "error"}
        containers = (answer.response or {}).get("container_responses", ())
        return {place: "ok"} | _containers(place, containers)
    outcome: Outcome = {}
    if answer.registered_again is not None:
        outcome[f"{place} registered again"] = answer.registered_again
    if answer.list_after is not None:
        outcome |= {f"{place} list {key}": value for key, value in _recorded_list(answer.list_after).items()}
    if answer.xid is not None:
        outcome[f"{place} lists sent"] = answer.lists_sent
        if answer.lists:
            outcome[f"{place} health"] = answer.lists[-1].health
    if answer.node_annotations is not None:
        outcome |= {f"{place} node {key}": value for key, value in answer.node_annotations.items()}
    if answer.alive is not None:
        outcome[f"{place} alive"] = answer.alive
    return outcome


def _recorded_list(listed: Listed) -> Outcome:
    ids = [one["ID"] for one in listed.devices or ()]
    return {
        "count": listed.count,
        "bytes": listed.encoded_bytes,
        "ids": listed.sorted_ids_sha256 or digest(ids),
        "health": listed.health,
        "topology": listed.topology,
    }


# --- Ours, of the same form -------------------------------------------------------------------------------------------


def list_of(message: Any) -> Outcome:
    nodes = [",".join(str(node.ID) for node in one.topology.nodes) or "none" for one in message.devices]
    return {
        "count": len(message.devices),
        "bytes": message.ByteSize(),
        "ids": digest([one.ID for one in message.devices]),
        "health": health_of(message),
        "topology": dict(Counter(nodes)),
    }


def health_of(message: Any) -> dict[str, int]:
    return dict(Counter(one.health for one in message.devices))


def answer_of(place: str, answer: Any) -> Outcome:
    """`answer`: a response, or the text of an error."""
    if isinstance(answer, str):
        return {place: Says(answer)}
    found = [
        {
            "envs": dict(one.envs),
            "mounts": len(one.mounts),
            "devices": len(one.devices),
            "annotations": len(one.annotations),
            "cdi_devices": len(one.cdi_devices),
        }
        for one in getattr(answer, "container_responses", ())
    ]
    return {place: "ok"} | _containers(place, found)


def _containers(place: str, containers: Iterable[Mapping[str, Any]]) -> Outcome:
    outcome: Outcome = {}
    for index, one in enumerate(containers):
        here = f"{place}.{index}" if index else place
        outcome |= {f"{here} {key}": value for key, value in one.get("envs", {}).items()}
        outcome |= {f"{here} {key}": value for key, value in one.items() if key != "envs" and value}
    return outcome


def _amounts(place: str, node: Mapping[str, Any]) -> Outcome:
    parts = [(part, node.get(part) or {}) for part in ("capacity", "allocatable")]
    return {f"{place} {part} {key}": value for part, amounts in parts for key, value in amounts.items()}


def node_of(place: str, node: Mapping[str, Any]) -> Outcome:
    return _amounts(place, node.get("status") or {})


def timeless(wanted: Outcome, ours: Outcome) -> Outcome:
    """A time of about now, where one is wanted, is the mark that stands for it."""
    now_ns = time.time_ns()
    return {
        key: NOW_NS
        if wanted.get(key) == NOW_NS and re.fullmatch(r"\d{19}", str(value)) and abs(int(value) - now_ns) < HOUR_NS
        else value
        for key, value in ours.items()
    }


def digest(ids: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(sorted(ids)).encode()).hexdigest()


# --- Judged -----------------------------------------------------------------------------------------------------------


def unlike(theirs: Outcome, ours: Outcome) -> Outcome:
    """Every place where they are not the same, with what ours has there."""
    refused = [place for place, value in ours.items() if isinstance(value, Says)]
    found: Outcome = {}
    for place in sorted(theirs.keys() | ours.keys()):
        if any(place != one and re.match(rf"{re.escape(one)}[ .]", place) for one in refused):
            continue  # of an error nothing more is told
        mine, other = ours.get(place), theirs.get(place)
        same = isinstance(mine, Says) and mine.is_meant if other == "error" else mine == other
        if not same:
            found[place] = mine
    return found


def meant(differences: Differences, name: str) -> dict[str, tuple[str, Any]]:
    """What ours should have, by place, and which difference says so."""
    found: dict[str, tuple[str, Any]] = {}
    for key, difference in differences.items():
        for place in difference.places:
            if number(name) in place.cases.split():
                for where, value in place.ours.items():
                    assert where not in found, f"{name}: {where} is told by {found[where][0]} and by {key}"
                    found[where] = (key, value)
    return found


def expected(differences: Differences, case: Case) -> Outcome:
    """What ours should come to: theirs, and every difference that is meant."""
    return recorded(case) | {where: value for where, (_, value) in meant(differences, case.case).items()}


def faults(differences: Differences, case: Case, ours: Outcome, *, ends: bool | None = None) -> list[str]:
    return judge(differences, case.case, recorded(case), timeless(expected(differences, case), ours), ends=ends)


def judge(
    differences: Differences, name: str, theirs: Outcome, ours: Outcome, *, ends: bool | None = None
) -> list[str]:
    """`ends`: judge only how the process ended, or everything but that."""

    def asked(place: str) -> bool:
        return ends is None or (place in ENDS) == ends

    told = {place: value for place, value in meant(differences, name).items() if asked(place)}
    found = {place: value for place, value in unlike(theirs, ours).items() if asked(place)}
    return list(_faults(told, theirs, found))


def _faults(told: Mapping[str, tuple[str, Any]], theirs: Outcome, found: Outcome) -> Iterator[str]:
    for place, mine in found.items():
        if place not in told:
            yield f"{place}: {theirs.get(place)!r}, ours {mine!r}"
        elif not _is(told[place][1], mine):
            yield f"{place}: {told[place][1]!r} by {told[place][0]}, ours {mine!r}"
    for place in told.keys() - found.keys():
        yield f"{place}: {told[place][0]} says {told[place][1]!r}, and it is as theirs"


def _is(told: Any, mine: Any) -> bool:
    if isinstance(told, Says):
        return isinstance(mine, Says) and mine.is_meant and told.words in mine.words
    return bool(told == mine)

"""What a scenario saw, and how it is made comparable: without uids, names, paths, and which of equal devices it was.

Pure. Must not know where a trace comes from.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

Trace = list[list[Any]]  # what was looked at, and what was seen
CONTAINER = re.compile(r"\b[0-9a-f]{64}\b")  # its id with the runtime
# A structure of the kubelet's, with addresses in memory.
DUMP = re.compile(r"endpoint &\{.*?\} has been stopped")
# A plugin that ends refuses the call and ends its stream, and at the end of the stream the kubelet closes the
# connection, and with it the call. Which of the two a pod is told is chance, here as there.
ENDED = re.compile(
    "code = (?:Unavailable desc = Cancelling all calls|Canceled desc = grpc: the client connection is closing)"
)


def comparable(trace: Trace, names: Mapping[str, str], alike: tuple[str, ...]) -> Trace:
    """`names` says what to write for what differs from one run to the next."""
    text = DUMP.sub("endpoint &{DUMP} has been stopped", json.dumps(trace))
    text = CONTAINER.sub("CONTAINER", text)
    text = ENDED.sub("code = ENDED", text)
    for old in sorted(names, key=len, reverse=True):
        text = text.replace(old, names[old])
    return _renamed(json.loads(text), alike)


def in_order(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(items, key=lambda item: json.dumps(item, sort_keys=True))


def _renamed(trace: Trace, alike: tuple[str, ...]) -> Trace:
    """Names devices that are alike in the order in which they are chosen, and those never chosen after them."""
    if not alike:
        return trace
    pattern = re.compile(r"\b(" + "|".join(map(re.escape, alike)) + r")\b")
    calls = [call for what, heard in trace if what.endswith(": calls") for call in heard]
    chosen = [i for call in calls if call[0] == "Allocate" for i in pattern.findall(json.dumps(call))]
    order = list(dict.fromkeys([*chosen, *alike]))
    names = {i: f"#{number}" for number, i in enumerate(order, 1)}
    text = pattern.sub(lambda found: names[found[1]], json.dumps(trace))
    renamed: Trace = json.loads(text)
    return [[what, _resorted(seen)] for what, seen in renamed]


def _resorted(value: Any) -> Any:
    """Lists of ids, and of what carries one id each, in the order of their new names."""
    if isinstance(value, dict):
        return {key: _resorted(item) for key, item in value.items()}
    if isinstance(value, list):
        items = [_resorted(item) for item in value]
        if items and all(isinstance(item, str) and item.startswith("#") for item in items):
            return sorted(items)
        if items and all(isinstance(item, dict) and item.keys() & {"deviceIds", "answer"} for item in items):
            return in_order(items)
        return items
    if isinstance(value, str) and "#" in value:
        return ",".join(sorted(value.split(",")))
    return value

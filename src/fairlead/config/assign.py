"""From what people wrote about assignment to what the engine uses, with every fault named."""

from __future__ import annotations

import re

from fairlead.config.rulespec import AssignSpec, By
from fairlead.kit.documents import Path
from fairlead.model.assign import Assign, NodeEnv

Problem = tuple[Path, str]

# As the API server takes them: an optional domain, and a name.
_KEY = r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_NOTE = r"\{annotation:([^{}]*)\}"
WAIT_MAX_S = 30.0  # the kubelet admits nothing else meanwhile


def compile_assign(spec: AssignSpec, shown: dict[str, str], at: Path, problems: list[Problem]) -> Assign:
    """`shown`: what containers are shown, as templates by name."""
    keys: list[tuple[Path, str]] = [(("device",), spec.device)]
    keys += [(("perContainer",), spec.per_container), (("time",), spec.time), (("assigned",), spec.assigned)]
    keys += [(("nodeLock",), spec.node_lock), (("actual",), spec.actual)]
    keys += [(("needs", number), key) for number, key in enumerate(spec.needs)]
    keys += [(("marks",), key) for key in spec.marks]
    keys += [(("nodeEnv", number, "label"), part.label) for number, part in enumerate(spec.node_env)]
    for path, key in keys:
        if (key or path[0] in {"device", "needs"}) and not re.fullmatch(_KEY, key):
            problems.append(((*at, *path), f"{key!r} is no key of an annotation, such as example.com/gpu-index"))
    if spec.time_required and not spec.time:
        problems.append(((*at, "timeRequired"), "it has no effect without time, the annotation that holds the time"))
    if spec.wait > WAIT_MAX_S:
        problems.append(
            (
                (*at, "wait"),
                f"{spec.wait:g} s is too long: the kubelet admits no pod meanwhile. Give {WAIT_MAX_S:g} s or less",
            )
        )
    theirs = {spec.device, spec.per_container, spec.time, spec.assigned, *spec.needs, *spec.marks}
    if spec.actual and spec.actual in theirs:
        problems.append(((*at, "actual"), f"{spec.actual!r} has another meaning here already. Give a key of its own"))
    for name, text in shown.items():
        problems += [
            ((*at, "needs"), f"{name} shows {key!r}, which is not listed here. Add it")
            for key in re.findall(_NOTE, text)
            if key not in spec.needs
        ]
    return Assign(
        device=spec.device,
        by_id=spec.by is By.ID,
        per_container=spec.per_container,
        time=spec.time,
        time_required=spec.time_required,
        assigned=spec.assigned,
        unassigned=frozenset(spec.unassigned),
        after_bind=spec.after_bind,
        actual=spec.actual,
        needs=tuple(spec.needs),
        wait_s=spec.wait,
        marks=spec.marks,
        only_device=spec.only_device,
        strict=spec.strict,
        node_lock=spec.node_lock,
        node_env=tuple(NodeEnv(part.label, part.value, part.env) for part in spec.node_env),
    )

"""The pages of the reference about conformance: every scenario with its rule. Used by `docs.generate`."""

from __future__ import annotations

from collections.abc import Iterator

from fairlead.standin.conformance import CHAPTERS, Level, Scenario
from fairlead.standin.conformance.evidence import VERSION


def rules() -> Iterator[str]:
    yield "# The scenarios of the conformance suite"
    yield (
        "What each scenario asks of a device plugin, and why. A *required* one is what a kubelet does: where it fails, "
        "pods fail, devices are lost, or the kubelet is harmed. An *advised* one harms no pod, or no kubelet asks it. "
        "`fairlead conformance --explain C41` shows the same. [Guide](../guide/conformance.md)"
    )
    for chapter in CHAPTERS:
        yield f"## {chapter.title}"
        for scenario in chapter.scenarios:
            yield from _rule(scenario)


def _rule(scenario: Scenario) -> Iterator[str]:
    yield f"### {scenario.id}"
    name = scenario.name[0].upper() + scenario.name[1:]
    yield f"**{name}** ({scenario.level}). {scenario.rule}"
    yield scenario.why
    if (evidence := scenario.evidence) is not None:
        yield f"Kubelet {VERSION}: {evidence.does} {evidence.place}."
    elif scenario.foreign and scenario.level is Level.ADVISED:
        yield "No kubelet does this."

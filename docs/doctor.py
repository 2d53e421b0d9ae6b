"""The page of the reference about `fairlead doctor`: every check with its code. Used by `docs.generate`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fairlead.programs.doctor.checks import CHAPTERS
from fairlead.programs.doctor.findings import Check

_VALUE = re.compile(r"\{([a-z]+)\}")


def page() -> Iterator[str]:
    yield "# What `fairlead doctor` looks for"
    yield (
        "Each check has a code that stays the same. An *error*: devices or pods fail now, or with the next pod. A "
        "*warning*: they will, in a case that is to be expected. A *note* explains what is seen, and does not change "
        "the exit code. The command is the cure; words in capitals are filled in from what was seen, and some findings "
        "have another command for their own case. A check that lacks what it needs is *not looked at*. "
        "[Guide](../guide/troubleshooting.md#fairlead-doctor)"
    )
    for chapter in CHAPTERS:
        yield f"## {chapter.title}"
        for check in sorted(chapter.checks, key=lambda one: one.code):
            yield from _check(check)


def _check(check: Check) -> Iterator[str]:
    yield f"### {check.code}"
    is_name = "." in check.title.partition(" ")[0]
    title = check.title if is_name else check.title[0].upper() + check.title[1:]
    yield f"**{title}** ({check.severity}). {check.why}"
    yield f"Needs {' and '.join(check.needs)}."
    yield f"```text\n{_VALUE.sub(lambda match: match[1].upper(), check.cure)}\n```"

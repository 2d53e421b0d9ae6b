"""Fill a rule's edits with the facts of a grant: `{ids}`, `{indexes}`, `{slots}`, `{count}`, `{resource}`.

Only these words are replaced; any other brace stays as it is, so that JSON in a variable survives.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec.structs import replace

from fairlead.model.edits import Edits, Grant

WORDS: dict[str, Callable[[Grant], str]] = {
    "ids": lambda grant: ",".join(device.id for device in grant.devices),
    "indexes": lambda grant: ",".join(device.index for device in grant.devices),
    "slots": lambda grant: ",".join(grant.slots),
    "count": lambda grant: str(len(grant.slots)),
    "resource": lambda grant: grant.resource,
}
_WORD = re.compile("{(" + "|".join(WORDS) + ")}")


def fill(edits: Edits, grant: Grant) -> Edits:
    if not edits.env and not edits.annotations:
        return edits

    def text(template: str) -> str:
        return _WORD.sub(lambda found: WORDS[found[1]](grant), template) if "{" in template else template

    return replace(
        edits,
        env={key: text(value) for key, value in edits.env.items()},
        annotations={key: text(value) for key, value in edits.annotations.items()},
    )

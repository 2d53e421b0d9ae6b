"""Name patterns: "{name}" and "{i:02x}" in what people write. Fills them from the names at hand, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Mapping

from fairlead.kit.decoding import did_you_mean

_FIELD = re.compile(r"\{(\w+)(?::([^{}]*))?\}")


def fill(pattern: str, names: Mapping[str, str | int], key: str) -> str:
    """ValueError names the key, the pattern and the names there are. Not str.format: that reaches attributes."""

    def value(match: re.Match[str]) -> str:
        name, style = match[1], match[2] or ""
        if name not in names:
            raise ValueError(f"{key}: {pattern!r} uses {{{name}}}{did_you_mean(name, names)}")
        try:
            return format(names[name], style)
        except ValueError:
            raise ValueError(f"{key}: {pattern!r} formats {{{name}}} with {style!r}, which does not fit it") from None

    return _FIELD.sub(value, pattern)

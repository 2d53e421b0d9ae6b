"""Plays series of samples to the rules of deploy/monitoring, by promtool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.monitoring.promql import RULES, run
from tests.monitoring.provision import find_or_skip


def play(directory: Path, series: dict[str, str], tests: list[dict[str, Any]]) -> None:
    """By `promtool test rules`, a sample and an evaluation a minute."""
    made = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": values} for name, values in series.items()],
                "promql_expr_test": tests,
            }
        ],
    }
    file = directory / "stories.yaml"
    file.write_text(yaml.safe_dump(made))
    run(find_or_skip().promtool, "test", "rules", str(file))

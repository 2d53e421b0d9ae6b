"""The list of scenarios. Importing this package fills it."""

from tests.differential.scenarios import (  # noqa: F401 - each adds its scenarios
    allocate,
    grace,
    lists,
    outside,
    pods,
    preference,
    prestart,
    registration,
    restarts,
    views,
    watcher,
)
from tests.differential.stage import SCENARIOS

__all__ = ["SCENARIOS"]

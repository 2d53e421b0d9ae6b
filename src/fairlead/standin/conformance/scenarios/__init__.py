"""The scenarios, one module per chapter. `CHAPTERS` has them in the order in which they are played."""

from fairlead.standin.conformance.scenario import Chapter
from fairlead.standin.conformance.scenarios import (
    allocate,
    health,
    kubelet_restart,
    list_and_watch,
    multi_container,
    multi_resource,
    preferred_allocation,
    registration,
    robustness,
    shutdown,
    steady_state,
    whole_run,
)

_MODULES = (
    registration, list_and_watch, steady_state, allocate, multi_container, preferred_allocation, kubelet_restart,
    health, multi_resource, shutdown, robustness, whole_run,
)  # fmt: skip
CHAPTERS: tuple[Chapter, ...] = tuple(module.CHAPTER for module in _MODULES)

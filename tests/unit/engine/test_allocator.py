"""The allocator answers every request for a preference."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from fairlead.engine import allocator as module
from fairlead.engine.allocator import Allocator, Ask
from fairlead.model.device import Device
from fairlead.model.edits import Edits, Grant
from fairlead.model.inventory import Inventory
from fairlead.model.names import DeviceId, ResourceName
from fairlead.model.resource import Resource
from fairlead.policy.offering.rules import ANY, Rule, make_offering


async def prepare(_resource: Resource, _grant: Grant) -> None: ...


def test_placement_that_cannot_be_loaded_leaves_the_choice_to_the_kubelet(monkeypatch: pytest.MonkeyPatch):
    """A module is a file, and a process may have no descriptor left."""

    def placement() -> Any:
        raise OSError(errno.EMFILE, "Too many open files")

    (gpu,) = make_offering(
        Inventory((Device(DeviceId("gpu0")),)), [Rule(ANY, ResourceName("example.com/gpu"))]
    ).resources
    facts: list[tuple[str, dict[str, Any]]] = []
    allocator = Allocator(lambda *_: Edits(), prepare, lambda event, **keys: facts.append((event, keys)))
    monkeypatch.setattr(module, "placement", placement)
    assert allocator.prefer(gpu, [Ask(["gpu0"], [], 1)]) == [()]
    ((event, keys),) = facts
    assert (event, keys["reason"]) == ("preference-declined", "[Errno 24] Too many open files")

"""A backend has the ports it can serve, and is recognised by them."""

from collections.abc import Mapping
from typing import Any

from fairlead.model.device import Device
from fairlead.model.edits import NO_EDITS, Edits, Grant
from fairlead.model.health import Cause
from fairlead.model.inventory import Findings
from fairlead.model.ports import Backend, Closes, EditsGrants, Prepares, Probes, Sink, Steers, Watches


class Plain:
    name = "plain"

    async def discover(self) -> Findings:
        return Findings()


class Able(Plain):
    async def watch(self, sink: Sink) -> None: ...

    async def probe(self, device: Device) -> Cause | None: ...

    def edits(self, grant: Grant) -> Edits:
        return NO_EDITS

    async def prepare(self, grant: Grant) -> None: ...

    def steer(self, order: Mapping[str, Any]) -> str:
        return ""

    async def close(self) -> None: ...


ABILITIES = (Watches, Probes, EditsGrants, Prepares, Steers, Closes)


def test_a_backend_needs_no_more_than_to_say_what_exists() -> None:
    assert isinstance(Plain(), Backend)
    assert not any(isinstance(Plain(), ability) for ability in ABILITIES)


def test_each_ability_is_found_by_its_method() -> None:
    assert isinstance(Able(), Backend)
    assert all(isinstance(Able(), ability) for ability in ABILITIES)

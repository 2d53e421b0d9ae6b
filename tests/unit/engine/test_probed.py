"""A source tells when its probes last had a verdict: one that stopped can be told from one whose devices are well."""

from __future__ import annotations

from tests.unit.engine.box import Box, Probed, running

from fairlead.model.errors import BackendError
from fairlead.model.health import Cause, CauseKind


async def test_a_round_with_a_verdict_has_a_time():
    async with running(Probed("a", "b")) as rig:
        await rig.source.pulse()
        first_s = rig.source.probed_s
        assert first_s == rig.clock.now()
        await rig.clock.advance(60)
        rig.backend.faults = {"a": Cause("ecc", CauseKind.TRANSIENT), "b": BackendError("no")}
        await rig.source.pulse()
        assert rig.source.probed_s == rig.clock.now() > first_s


async def test_rounds_without_data_leave_the_time_of_the_last_verdict():
    async with running(Probed("a", "b")) as rig:
        await rig.source.pulse()
        last_s = rig.source.probed_s
        rig.backend.faults = {"a": BackendError("no"), "b": BackendError("no")}
        await rig.clock.advance(60)
        await rig.source.pulse()
        assert rig.source.probed_s == last_s


async def test_a_backend_that_found_nothing_has_not_stopped():
    async with running(Probed()) as rig:
        await rig.source.pulse()
        assert rig.source.probed_s == rig.clock.now()


async def test_a_backend_that_cannot_be_asked_has_no_time():
    async with running(Box("a")) as rig:
        await rig.source.pulse()
        assert not rig.source.probed
        assert rig.source.probed_s is None

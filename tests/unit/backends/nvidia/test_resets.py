"""A GPU with a fault that only a reset cures comes back when a reset was seen, and not before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.nvml import Driver, Node, gpus
from tests.nvml.models import partitioned
from tests.unit.backends.nvidia.drivers import installed
from tests.unit.backends.nvidia.ward import ward

from fairlead.model.errors import BackendError
from fairlead.model.health import Health


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with installed(Driver(gpus=gpus("A100", 2)), tmp_path) as node:
        yield node


def remap(node: Node) -> None:
    node.change(0, remap_pending=1)


def lose(node: Node) -> None:
    node.lose(0)


def ask_for_reset(node: Node) -> None:
    node.change(0, recovery_action=1)


def nothing(_node: Node) -> None:
    pass


RESETS: list[tuple[int, Callable[[Node], None], Callable[[Node], None]]] = [
    (63, remap, lambda node: node.change(0, remap_pending=0)),
    (63, nothing, lambda node: node.load_anew()),
    (79, lose, lambda node: node.find(0)),
    (95, ask_for_reset, lambda node: node.change(0, recovery_action=0)),
    (119, nothing, lambda node: node.load_anew()),
    (48, nothing, lambda node: node.rebind(0)),
]


@pytest.mark.parametrize(("xid", "shows", "reset"), RESETS)
async def test_a_gpu_comes_back_when_a_reset_was_seen_and_not_before(
    node: Node, xid: int, shows: Callable[[Node], None], reset: Callable[[Node], None]
) -> None:
    uuid = node.driver.gpus[0].uuid
    node.change(0, recovery_action=0)
    async with ward(node) as it:
        node.xid(0, xid)
        await it.until(uuid, Health.UNHEALTHY)
        await it.source.pulse()
        shows(node)
        await it.pass_time()
        assert it.health(uuid) is Health.UNHEALTHY
        reset(node)
        await it.pass_time()
        assert it.health(uuid) is Health.HEALTHY
        assert "cause-cured" in it.facts
        assert it.health(node.driver.gpus[1].uuid) is Health.HEALTHY


async def test_rows_that_still_wait_outweigh_a_new_driver(node: Node) -> None:
    uuid = node.driver.gpus[0].uuid
    async with ward(node) as it:
        node.xid(0, 63)
        await it.until(uuid, Health.UNHEALTHY)
        remap(node)
        await it.pass_time(2)
        node.load_anew()
        await it.pass_time()
        assert it.health(uuid) is Health.UNHEALTHY


async def test_an_instance_comes_back_with_its_gpu_and_another_never_left(node: Node) -> None:
    parts = partitioned(node.driver.gpus[0], "3g.20gb", "3g.20gb")
    node.become(replace(node.driver, gpus=(parts, node.driver.gpus[1])))
    first, second = parts.migs
    async with ward(node, mig="mixed") as it:
        node.xid(0, 63, gi=second.gi, ci=second.ci)
        await it.until(second.uuid, Health.UNHEALTHY)
        await it.pass_time()
        assert (it.health(first.uuid), it.health(second.uuid)) == (Health.HEALTHY, Health.UNHEALTHY)
        node.load_anew()
        await it.pass_time()
        assert it.health(second.uuid) is Health.HEALTHY


async def test_a_new_daemon_finds_rows_that_wait_for_a_reset(node: Node) -> None:
    remap(node)
    uuid = node.driver.gpus[0].uuid
    async with ward(node) as it:
        await it.source.pulse()
        assert it.health(uuid) is Health.UNHEALTHY
        await it.pass_time()
        assert it.health(uuid) is Health.UNHEALTHY
        node.change(0, remap_pending=0)
        await it.pass_time()
        assert it.health(uuid) is Health.HEALTHY


async def test_without_a_session_there_is_no_data_and_nobody_is_cured(node: Node) -> None:
    uuid = node.driver.gpus[0].uuid
    async with ward(node) as it:
        node.xid(0, 46)
        await it.until(uuid, Health.UNHEALTHY)
        await it.source.pulse()
        node.fault("nvmlInit", 9)
        it.source.rescan(fresh=True)
        await it.source.scan()
        assert "driver does not start" in it.source.problem
        assert len(it.source.findings.devices) == 2
        node.load_anew()
        await it.pass_time()
        assert it.health(uuid) is Health.UNHEALTHY
        with pytest.raises(BackendError, match="no session"):
            await it.backend.signs(it.source.findings.devices)
        node.mend()
        await it.source.scan()
        await it.pass_time()
        assert it.health(uuid) is Health.HEALTHY

"""RDMA adapters as devices: nodes that belong together, and links that go down and come back."""

from __future__ import annotations

import pytest
from tests.clock import FakeClock
from tests.unit.backends import sysfs
from tests.unit.backends.host import Host, backend, probe, scan, see, watching

from fairlead.model.device import Device

UP, DOWN, INIT = "4: ACTIVE", "1: DOWN", "2: INIT"


def _fabric(host: Host) -> list[str]:
    """Two adapters, the first with two ports."""
    wheres = [sysfs.function(host, f"0000:3b:00.{n}", "15B3:101B", kind="020700", numa="1") for n in (0, 1)]
    sysfs.adapter(host, wheres[0], "mlx5_0", 0, {"1": UP, "2": DOWN}, guid="b859:9f03:00aa:0001")
    sysfs.adapter(host, wheres[1], "mlx5_1", 1, {"1": UP}, guid="b859:9f03:00aa:0002")
    return [f"{where}/infiniband/mlx5_{n}" for n, where in enumerate(wheres)]


async def test_an_adapter_has_its_siblings_and_the_connection_manager(host: Host):
    _fabric(host)
    found = await scan(backend(host, {"rdma": {}}))
    names = {name: [node.path.rpartition("/")[2] for node in device.nodes] for name, device in found.items()}
    assert names == {
        "0000:3b:00.0": ["uverbs0", "issm0", "umad0", "issm02", "umad02", "rdma_cm"],
        "0000:3b:00.1": ["uverbs1", "issm1", "umad1", "rdma_cm"],
    }
    device = found["0000:3b:00.0"]
    assert (device.pci_address, device.numa_nodes, device.index) == ("0000:3b:00.0", (1,), "mlx5_0")
    assert device.attributes == {
        "adapter": "mlx5_0",
        "ports": "1,2",
        "guid": "b859:9f03:00aa:0001",
        "linkLayer": "InfiniBand",
    }


async def test_each_port_may_be_a_device(host: Host):
    _fabric(host)
    found = await scan(backend(host, {"rdma": {"per": "port", "nodes": ["uverbs*", "umad*"], "adapter": "mlx5_0"}}))
    names = {name: [node.path.rpartition("/")[2] for node in device.nodes] for name, device in found.items()}
    assert names == {"0000:3b:00.0-port1": ["uverbs0", "umad0"], "0000:3b:00.0-port2": ["uverbs0", "umad02"]}


async def test_an_adapter_without_an_active_port_is_unhealthy_until_one_is_back(host: Host):
    first, second = _fabric(host)
    paths = backend(host, {"rdma": {}})
    one, other = (await paths.discover()).devices
    assert (await probe(paths, one), await probe(paths, other)) == (None, None)
    host.put(f"{first}/ports/1/state", INIT)
    assert str(await probe(paths, one)) == "link-down: mlx5_0: port 1 is INIT, port 2 is DOWN"
    assert await probe(paths, other) is None
    host.put(f"{first}/ports/2/state", UP)
    assert await probe(paths, one) is None
    host.put(f"{second}/ports/1/state", DOWN)
    careless = backend(host, {"rdma": {"requireLink": False}})
    assert [await probe(careless, device) for device in (await careless.discover()).devices] == [None, None]
    await paths.close()
    await careless.close()


async def test_a_link_is_reported_by_the_watch_and_cleared_by_it(host: Host):
    first, _ = _fabric(host)
    clock = FakeClock()
    async with watching(backend(host, {"rdma": {"per": "port"}}, clock=clock)) as notes:
        await notes.wait_for("fault", "0000:3b:00.0-port2", "link-down")
        await clock.until_asleep(30)
        host.put(f"{first}/ports/2/state", UP)
        await clock.advance(30)
        await notes.wait_for("clear", "0000:3b:00.0-port2", "link-down")


async def test_a_state_that_cannot_be_read_says_nothing(host: Host):
    first, _ = _fabric(host)
    paths = backend(host, {"rdma": {"adapter": "mlx5_0"}})
    (device,) = (await paths.discover()).devices
    for text in ("", "garbage", "x" * 100_000, "\x00\xff"):
        for port in ("1", "2"):
            host.put(f"{first}/ports/{port}/state", text)
        assert await probe(paths, device) is None
    await paths.close()


async def test_an_adapter_without_pci_is_known_by_its_guid_or_its_name(host: Host):
    sysfs.adapter(host, "/sys/devices/virtual/net/eth0", "rxe0", 0, {"1": UP}, guid="5054:00ff:fe12:3456")
    sysfs.adapter(host, "/sys/devices/virtual/net/eth1", "rxe1", 1, {"1": UP}, guid="0000:0000:0000:0000")
    assert list(await scan(backend(host, {"preset": "rdma"}))) == ["5054:00ff:fe12:3456", "rxe1"]


async def test_the_name_of_an_adapter_may_change_and_the_device_is_the_same(host: Host):
    _fabric(host)
    before = await scan(backend(host, {"rdma": {}}))
    for name in ("mlx5_0", "mlx5_1"):
        (host.root / f"sys/class/infiniband/{name}").unlink()
    where = f"{sysfs.BRIDGE}/0000:3b:00.0"
    sysfs.adapter(host, where, "rocep59s0f0", 5, {"1": UP})
    after = await scan(backend(host, {"rdma": {}}))
    assert list(after) == ["0000:3b:00.0"]
    assert after["0000:3b:00.0"].nodes != before["0000:3b:00.0"].nodes


async def test_without_the_module_for_nodes_an_adapter_says_so(host: Host):
    where = sysfs.function(host, "0000:3b:00.0")
    host.put(f"{where}/infiniband/mlx5_0/ports/1/state", UP)
    host.link("/sys/class/infiniband/mlx5_0", f"{where}/infiniband/mlx5_0")
    paths = backend(host, {"rdma": {}})
    (device,) = (await paths.discover()).devices
    assert str(await probe(paths, device)) == "no-node: mlx5_0 has no device node: is ib_uverbs loaded?"
    await paths.close()


def _nodes(device: Device) -> list[str]:
    return [node.path.rpartition("/")[2] for node in device.nodes]


@pytest.mark.parametrize("text", ["", "garbage", "\x00\x1b[31m"])
@pytest.mark.parametrize("nodes", [[], ["uverbs*", "rdma_cm"], ["uverbs0", "rdma_cm"], ["u*"]])
async def test_an_adapter_whose_nodes_do_not_say_so_is_not_well_and_they_are_named(
    host: Host, text: str, nodes: list[str]
):
    """The node of all adapters gives no access to this one."""
    _fabric(host)
    host.put("/sys/class/infiniband_verbs/uverbs0/ibdev", text)
    paths = backend(host, {"rdma": {"nodes": nodes} if nodes else {}})
    found = await paths.discover()
    one, other = found.devices
    assert (_nodes(one), str(await probe(paths, one)).partition(":")[0]) == ([], "no-node")
    if nodes != ["uverbs0", "rdma_cm"]:
        assert (_nodes(other)[0], await probe(paths, other)) == ("uverbs1", None)
    (problem,) = found.problems
    assert problem.startswith("/sys/class/infiniband_verbs/uverbs0/ibdev says '")
    assert problem.endswith("which is no adapter: /dev/infiniband/uverbs0 is left out")
    assert problem.isprintable()
    await paths.close()
    names, problems = await see(backend(host, {"preset": "rdma"}))  # left out with its name
    assert (names, problems) == (["0000:3b:00.1"], (problem,))


async def test_the_nodes_to_manage_a_port_may_be_all_that_is_wanted(host: Host):
    _fabric(host)
    for name in ("uverbs0", "uverbs1"):
        (host.root / f"sys/class/infiniband_verbs/{name}").unlink()
    found = await scan(backend(host, {"rdma": {"nodes": ["umad*"]}}))
    assert [_nodes(device) for device in found.values()] == [["umad0", "umad02"], ["umad1"]]
    assert [_nodes(device) for device in (await scan(backend(host, {"rdma": {}}))).values()] == [[], []]


@pytest.mark.parametrize(
    ("file", "text", "why"),
    [
        ("ibdev", "\xff \n?", "'\xff \\n?', which is no adapter"),
        ("port", "9", "'9', which is no port of mlx5_1"),
    ],
)
async def test_a_node_to_manage_that_does_not_say_whose_it_is_is_named(host: Host, file: str, text: str, why: str):
    _fabric(host)
    host.put(f"/sys/class/infiniband_mad/umad1/{file}", text)
    paths = backend(host, {"rdma": {}})
    found = await paths.discover()
    assert found.problems == (f"/sys/class/infiniband_mad/umad1/{file} says {why}: /dev/infiniband/umad1 is left out",)
    assert [_nodes(device)[-2:] for device in found.devices] == [["umad02", "rdma_cm"], ["issm1", "rdma_cm"]]
    await paths.close()


async def test_nodes_of_adapters_in_another_network_namespace_are_passed_over(host: Host):
    _fabric(host)
    (host.root / "sys/class/infiniband/mlx5_1").unlink()
    assert await see(backend(host, {"rdma": {}})) == (["0000:3b:00.0"], ())

"""Whether each device is well: one verdict for each, by what the kernel shows and what AMD's exporter says."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.amd import machines, tree
from tests.amd.exporter import exporter
from tests.unit.backends.amd.trees import backend

from fairlead.backends.amd import AmdBackend, sysfs
from fairlead.backends.amd import backend as backend_module
from fairlead.kit.clock import SystemClock
from fairlead.model.health import Cause, CauseKind

FIRST, SECOND = "0000:19:00.0", "0000:1a:00.0"
Verdicts = dict[str, str]


async def probe(amd: AmdBackend) -> Verdicts:
    """The code for each device; "-" for one that is well, "?" where there is no data."""
    devices = (await amd.discover()).devices
    return await ask(amd, devices)


async def ask(amd: AmdBackend, devices: Any) -> Verdicts:
    found = await amd.probe_all(devices)
    return {name: _word(verdict) for name, verdict in found.items()}


def _word(verdict: Cause | Exception | None) -> str:
    return verdict.code if isinstance(verdict, Cause) else "?" if verdict else "-"


@pytest.fixture
async def amd(tmp_path: Path) -> AsyncIterator[AmdBackend]:
    tree.write(tmp_path, machines.vegas())
    opened = backend(tmp_path, SystemClock(), health={"exporter": str(tmp_path / "exporter.sock")})
    yield opened
    await opened.close()


async def test_gpus_of_an_old_kernel_are_well(amd: AmdBackend) -> None:
    """AMD's own plugin asks for a gfx version, which this kernel does not show, and calls all of them unhealthy."""
    assert await probe(amd) == {FIRST: "-", SECOND: "-"}


async def test_a_gpu_that_kfd_lost_is_ill_and_the_other_is_not(amd: AmdBackend, tmp_path: Path) -> None:
    tree.remove(tmp_path, f"{tree.NODES}/2")
    assert await probe(amd) == {FIRST: "-", SECOND: "kfd-gone"}
    tree.write(tmp_path, machines.vegas())
    assert await probe(amd) == {FIRST: "-", SECOND: "-"}


async def test_a_gpu_that_kfd_shows_again_at_the_second_look_is_well(tmp_path: Path) -> None:
    """The kernel makes all nodes anew when one GPU is cut. The whole look may fall in between."""
    tree.write(tmp_path, machines.vegas())
    clock = Rebuilding(tmp_path)
    opened = backend(tmp_path, clock)
    tree.remove(tmp_path, f"{tree.NODES}/1")
    tree.remove(tmp_path, f"{tree.NODES}/2")
    assert await probe(opened) == {FIRST: "-", SECOND: "-"}
    assert clock.slept == 1
    tree.remove(tmp_path, f"{tree.NODES}/2")
    clock.mends = False
    assert [await probe(opened) for _ in range(2)] == [{FIRST: "-", SECOND: "kfd-gone"}] * 2
    assert clock.slept == 2  # what is known to be lost needs no second look
    await opened.close()


class Rebuilding(SystemClock):
    """While the backend waits, the kernel shows all nodes again."""

    def __init__(self, root: Path) -> None:
        self._root, self.slept, self.mends = root, 0, True

    async def sleep(self, seconds: float) -> None:
        self.slept += 1
        if self.mends:
            tree.write(self._root, machines.vegas())


async def test_a_node_of_kfd_that_cannot_be_read_is_no_verdict(amd: AmdBackend, tmp_path: Path) -> None:
    """A daemon whose cgroup may not use the GPUs reads none of them: they are as well as all else says."""
    tree.remove(tmp_path, f"{tree.NODES}/2/properties")
    (tmp_path / tree.NODES / "2/properties").mkdir()
    assert await probe(amd) == {FIRST: "-", SECOND: "-"}


async def test_a_node_of_kfd_that_cannot_be_read_is_no_cure(amd: AmdBackend, tmp_path: Path) -> None:
    tree.remove(tmp_path, f"{tree.NODES}/2")
    assert await probe(amd) == {FIRST: "-", SECOND: "kfd-gone"}
    (tmp_path / tree.NODES / "2/properties").mkdir(parents=True)
    assert await probe(amd) == {FIRST: "-", SECOND: "?"}
    tree.remove(tmp_path, f"{tree.NODES}/2")
    tree.write(tmp_path, machines.vegas())
    assert await probe(amd) == {FIRST: "-", SECOND: "-"}


async def test_a_gpu_that_left_the_driver_is_ill(amd: AmdBackend, tmp_path: Path) -> None:
    devices = (await amd.discover()).devices
    tree.write(tmp_path, machines.vegas().without(SECOND))
    assert await ask(amd, devices) == {FIRST: "-", SECOND: "gpu-gone"}


async def test_without_the_driver_all_are_ill(amd: AmdBackend, tmp_path: Path) -> None:
    devices = (await amd.discover()).devices
    tree.write(tmp_path, replace(machines.vegas(), driver=False))
    assert await ask(amd, devices) == {FIRST: "driver-gone", SECOND: "driver-gone"}
    tree.write(tmp_path, machines.vegas())
    assert await ask(amd, devices) == {FIRST: "-", SECOND: "-"}


async def test_a_node_that_vanishes_is_a_fault_of_its_device(amd: AmdBackend, tmp_path: Path) -> None:
    assert await probe(amd) == {FIRST: "-", SECOND: "-"}
    tree.remove(tmp_path, "dev/dri/renderD129")
    assert await probe(amd) == {FIRST: "-", SECOND: "node-missing"}
    tree.remove(tmp_path, "dev/kfd")
    assert await probe(amd) == {FIRST: "node-missing", SECOND: "node-missing"}


async def test_nodes_that_were_never_there_say_nothing(tmp_path: Path) -> None:
    tree.write(tmp_path, machines.vegas(), with_dev=False)
    opened = backend(tmp_path)
    assert await probe(opened) == {FIRST: "-", SECOND: "-"}
    await opened.close()


def counters(**blocks: str) -> machines.Machine:
    return machines.vegas().change(SECOND, ras=tuple(blocks.items()))


@pytest.mark.parametrize(
    ("blocks", "code"),
    [
        ({"umc": "ue: 0\nce: 12\nde: 3\n", "gfx": "ue: 0\nce: 0\n"}, "-"),
        ({"umc": "ue: 1\nce: 0\n"}, "ras-umc"),
        ({"sdma": "ue: 0\nce: 0\n", "gfx": "ue: 2\nce: 0\n"}, "ras-gfx"),
        ({"umc": "Query currently inaccessible\n"}, "-"),
        ({"umc": "ue: many\n"}, "-"),
        ({"umc": "ue: 1" + "0" * 5000}, "-"),
    ],
)
async def test_counters_of_errors(amd: AmdBackend, tmp_path: Path, blocks: dict[str, str], code: str) -> None:
    tree.write(tmp_path, counters(**blocks))
    assert await probe(amd) == {FIRST: "-", SECOND: code}


async def test_an_uncorrectable_error_holds_until_the_driver_counts_anew(amd: AmdBackend, tmp_path: Path) -> None:
    tree.write(tmp_path, counters(umc="ue: 3\nce: 0\n"))
    devices = (await amd.discover()).devices
    cause = (await amd.probe_all(devices))[SECOND]
    assert isinstance(cause, Cause)
    assert cause.kind is CauseKind.NEEDS_RESET
    assert cause.message == f"uncorrectable errors: 3 in umc of {SECOND} since the driver was loaded"
    tree.write(tmp_path, counters(umc="Query currently inaccessible\n"))  # while the GPU is being reset
    assert await ask(amd, devices) == {FIRST: "-", SECOND: "ras-umc"}
    tree.write(tmp_path, counters(umc="ue: 0\nce: 0\n"))
    assert await ask(amd, devices) == {FIRST: "-", SECOND: "-"}


async def test_errors_of_a_gpu_reach_all_of_its_partitions(tmp_path: Path) -> None:
    machine = machines.mi308().change("0000:80:00.0", ras=(("umc", "ue: 1\nce: 0\n"),))
    tree.write(tmp_path, machine)
    opened = backend(tmp_path)
    ill = {name for name, code in (await probe(opened)).items() if code == "ras-umc"}
    assert ill == {"0000:80:00.0", "amdgpu_xcp_4", "amdgpu_xcp_5", "amdgpu_xcp_6"}
    await opened.close()


async def test_as_many_errors_as_are_tolerated(tmp_path: Path) -> None:
    tree.write(tmp_path, counters(umc="ue: 2\nce: 0\n"))
    opened = backend(tmp_path, health={"tolerated": {"umc": 2}})
    assert await probe(opened) == {FIRST: "-", SECOND: "-"}
    await opened.close()


async def test_checks_that_are_left_out_are_not_made(tmp_path: Path) -> None:
    tree.write(tmp_path, counters(umc="ue: 2\nce: 0\n"))
    for checks in ([], ["kfd", "nodes"]):
        opened = backend(tmp_path, health={"checks": checks})
        assert await probe(opened) == {FIRST: "-", SECOND: "-"}
        await opened.close()


async def test_a_gpu_whose_counters_hang_is_named_and_scans_go_on(
    amd: AmdBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.write(tmp_path, counters(umc="ue: 0\nce: 0\n"))
    devices = (await amd.discover()).devices
    release = threading.Event()
    monkeypatch.setattr(backend_module, "PROBE_S", 0.1)
    read = sysfs.text
    monkeypatch.setattr(sysfs, "text", lambda path: str(release.wait(10)) if "/ras/" in path else read(path))
    try:
        assert await ask(amd, devices) == {FIRST: "?", SECOND: "no-answer"}
        assert (await amd.discover()).devices == devices
    finally:
        release.set()


async def test_counters_that_are_slow_altogether_are_no_fault_of_one_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The GPU that is asked when the time is over has not hung."""
    machine, counts = machines.mi210(), (("umc", "ue: 0\nce: 0\n"),)
    tree.write(tmp_path, replace(machine, gpus=tuple(replace(gpu, ras=counts) for gpu in machine.gpus)))
    opened = backend(tmp_path, SystemClock())
    devices = (await opened.discover()).devices
    monkeypatch.setattr(backend_module, "PROBE_S", 0.4)
    slow, read = threading.Event(), sysfs.text
    monkeypatch.setattr(sysfs, "text", lambda path: (slow.wait(0.1) if "/ras/" in path else None, read(path))[1])
    assert set((await ask(opened, devices)).values()) == {"?"}
    await opened.close()


async def test_the_exporter_is_heard_while_a_gpu_hangs(
    amd: AmdBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.write(tmp_path, machines.vegas().change(FIRST, ras=(("umc", "ue: 0\nce: 0\n"),)))
    devices = (await amd.discover()).devices
    release = threading.Event()
    monkeypatch.setattr(backend_module, "PROBE_S", 0.1)
    read = sysfs.text
    monkeypatch.setattr(sysfs, "text", lambda path: str(release.wait(10)) if "/ras/" in path else read(path))
    try:
        async with exporter(tmp_path / "exporter.sock", [(SECOND, "unhealthy")]):
            assert await ask(amd, devices) == {FIRST: "no-answer", SECOND: "exporter"}
    finally:
        release.set()


async def test_a_topology_that_the_kernel_makes_anew_meanwhile_is_read_again(
    amd: AmdBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU that comes, goes or is cut takes the nodes of all others away for a moment."""
    found = await amd.discover()
    generation, numbered = tmp_path / tree.NODES / "../generation_id", sysfs.numbered
    changes = [7, 8]

    def changing(directory: str) -> list[int]:
        if not directory.endswith("/nodes") or not changes:
            return numbered(directory)
        generation.write_text(f"{changes.pop()}\n")
        return []

    monkeypatch.setattr(sysfs, "numbered", changing)
    assert await ask(amd, found.devices) == {FIRST: "-", SECOND: "-"}
    changes += [5, 6]
    assert await amd.discover() == found
    changes += [1, 2, 3, 4]
    assert await ask(amd, found.devices) == {FIRST: "?", SECOND: "?"}


async def test_the_exporter_says_which_are_unhealthy(amd: AmdBackend, tmp_path: Path) -> None:
    socket = tmp_path / "exporter.sock"
    async with exporter(socket, [(FIRST, "healthy"), (SECOND, "unhealthy"), ("other", "unhealthy")]):
        assert await probe(amd) == {FIRST: "-", SECOND: "exporter"}


@pytest.mark.parametrize(
    ("word", "code"),
    [("Unhealthy", "exporter"), ("unknown", "-"), ("", "-"), ("healthy", "-"), ("UNHEALTHY", "exporter")],
)
async def test_words_of_the_exporter(amd: AmdBackend, tmp_path: Path, word: str, code: str) -> None:
    async with exporter(tmp_path / "exporter.sock", [(SECOND, word)]):
        assert await probe(amd) == {FIRST: "-", SECOND: code}


async def test_a_gpu_that_the_exporter_names_reaches_its_partitions(tmp_path: Path) -> None:
    tree.write(tmp_path, machines.virtual())
    opened = backend(tmp_path, SystemClock(), health={"exporter": str(tmp_path / "x.sock")})
    async with exporter(tmp_path / "x.sock", [("0000:00:08.0", "unhealthy")]):
        assert set((await probe(opened)).values()) == {"exporter"}
    async with exporter(tmp_path / "x.sock", [("amdgpu_xcp_3", "unhealthy")]):
        assert [name for name, code in (await probe(opened)).items() if code != "-"] == ["amdgpu_xcp_3"]
    await opened.close()


async def test_an_exporter_that_fails_is_a_problem_and_no_cure(amd: AmdBackend, tmp_path: Path) -> None:
    socket = tmp_path / "exporter.sock"
    async with exporter(socket, [(SECOND, "unhealthy")]):
        assert await probe(amd) == {FIRST: "-", SECOND: "exporter"}
    async with exporter(socket, None):
        assert await probe(amd) == {FIRST: "-", SECOND: "exporter"}
        assert any("exporter" in problem and "internal: no" in problem for problem in (await amd.discover()).problems)
    async with exporter(socket, [(SECOND, "healthy")]):
        assert await probe(amd) == {FIRST: "-", SECOND: "-"}
        assert (await amd.discover()).problems == ()


async def test_an_exporter_that_is_gone_says_nothing(amd: AmdBackend, tmp_path: Path) -> None:
    socket = tmp_path / "exporter.sock"
    async with exporter(socket, [(SECOND, "unhealthy")]):
        assert await probe(amd) == {FIRST: "-", SECOND: "exporter"}
    socket.unlink(missing_ok=True)
    assert await probe(amd) == {FIRST: "-", SECOND: "-"}


async def test_an_exporter_that_sends_garbage_is_a_problem(amd: AmdBackend, tmp_path: Path) -> None:
    @asynccontextmanager
    async def plain(path: Path) -> AsyncIterator[None]:
        async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            writer.close()

        server = await asyncio.start_unix_server(answer, path)
        yield
        server.close()
        await server.wait_closed()

    async with plain(tmp_path / "exporter.sock"):
        assert await probe(amd) == {FIRST: "-", SECOND: "-"}
        assert "AMD's metrics exporter" in (await amd.discover()).problems[0]

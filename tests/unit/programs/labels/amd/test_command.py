"""`fairlead amd labels`: its flags, and its rounds against an API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from random import Random

import pytest
from tests.amd import machines, tree
from tests.amd.machines import Machine
from tests.apiserver.server import ApiServer, Fault
from tests.apiserver.updates import UpdatingServer, updating_server

from fairlead.cluster.access import Access, parse_server
from fairlead.cluster.client import Client
from fairlead.cluster.rbac import FEATURES
from fairlead.dialects.goflags import BadFlag
from fairlead.kit.clock import SystemClock
from fairlead.model.errors import BackendError
from fairlead.programs.labels.amd import command, node
from fairlead.programs.labels.amd.catalogue import KINDS

RIGHTS = {(verb, rule.resource) for rule in FEATURES["`fairlead amd labels`"] for verb in rule.verbs}
AMDS_RIGHTS = {(verb, "nodes") for verb in ("watch", "get", "list", "update")}
FOREIGN = {"amd.com/gpu": "true", "amd.com/mi300x": "y", "zone": "a"}
ENV = {"DS_NODE_NAME": "n"}
PATIENCE_S = 30


@pytest.fixture
async def server() -> AsyncIterator[UpdatingServer]:
    async with updating_server() as server:
        yield server


@pytest.fixture
async def client(server: ApiServer) -> AsyncIterator[Client]:
    client = Client(Access(parse_server(server.url)), SystemClock(), rng=Random(1), attempt_s=5.0, patience_s=0.0)
    yield client
    await client.close()


@pytest.fixture(autouse=True)
def brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node, "SETTLE_S", 0.05)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tree.write(tmp_path, machines.vegas())


class Labeller:
    """The program, running against a server."""

    def __init__(self, server: ApiServer, client: Client | None, root: Path, *args: str) -> None:
        made = command.read_settings([*args, f"--host-root={root}"], ENV)
        assert isinstance(made, command.Settings)
        self.server, self.stop = server, asyncio.Event()
        self.notes: list[str] = []
        self.work = asyncio.ensure_future(command.run(made, client, SystemClock(), self.stop, self.notes.append))

    def labels(self) -> dict[str, str]:
        found: dict[str, str] = self.server.store.get("nodes", "n")["metadata"].get("labels", {})
        return found

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                assert not self.work.done(), self.work
                await asyncio.sleep(0.01)

    async def end(self) -> None:
        self.stop.set()
        await asyncio.wait_for(self.work, PATIENCE_S)


def has(labeller: Labeller, **wanted: str) -> Callable[[], bool]:
    return lambda: wanted == {key: labeller.labels().get(f"amd.com/gpu.{key}") for key in wanted}


def put(server: ApiServer, **labels: str) -> None:
    server.store.put("nodes", {"metadata": {"name": "n", "labels": {**FOREIGN, **labels}}})


def methods(server: ApiServer) -> list[str]:
    return [request.method for request in server.requests if request.path.endswith("/n")]


# --- Rounds -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rights", [RIGHTS, AMDS_RIGHTS], ids=["the reference", "AMD's manifest"])
async def test_labels_come_stale_ones_go_and_others_stay(
    server: UpdatingServer, client: Client, root: Path, rights: set[tuple[str, str]]
):
    server.allowed = set(rights)
    put(server, **{"amd.com/gpu.family": "NV", "amd.com/gpu.vram.8G": "1", "beta.amd.com/gpu.firmware.ME.fw.1": "2"})
    labeller = Labeller(server, client, root, "-vram")
    await labeller.until(has(labeller, vram="16G"))
    assert labeller.labels() == {
        **FOREIGN,
        "amd.com/gpu.vram": "16G",
        "beta.amd.com/gpu.vram": "16G",
        "beta.amd.com/gpu.vram.16G": "2",
    }
    put(server, **labeller.labels() | {"amd.com/gpu.vram": "1G"})
    await labeller.until(has(labeller, vram="16G"))
    await labeller.end()
    assert labeller.labels()["amd.com/gpu.vram"] == "16G"
    assert labeller.notes == []


async def test_one_patch_has_only_what_differs(server: UpdatingServer, client: Client, root: Path):
    put(server, **{"amd.com/gpu.vram": "16G", "beta.amd.com/gpu.vram": "16G", "beta.amd.com/gpu.vram.8G": "2"})
    await Labeller(server, client, root, "-vram", "--oneshot").work
    assert methods(server) == ["GET", "PATCH"]
    assert server.requests[-1].json() == {
        "metadata": {"labels": {"beta.amd.com/gpu.vram.16G": "2", "beta.amd.com/gpu.vram.8G": None}}
    }
    await Labeller(server, client, root, "-vram", "--oneshot").work
    assert methods(server)[2:] == ["GET"]


async def test_what_another_writes_in_the_middle_is_not_lost(server: UpdatingServer, client: Client, root: Path):
    server.allowed = set(AMDS_RIGHTS)
    put(server)

    def write() -> None:
        server.before_update = lambda: None
        put(server, more="x")

    server.before_update = write
    labeller = Labeller(server, client, root, "-device-id", "--oneshot")
    await labeller.work
    assert {"more": "x", **FOREIGN}.items() <= labeller.labels().items()
    assert labeller.labels()["amd.com/gpu.device-id"] == "6860"


async def test_hardware_that_changes_changes_the_labels(
    server: UpdatingServer, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(command, "GLANCE_S", 0.1)
    one = Machine(machines.mi300x().gpus[:1])
    root = tree.write(tmp_path, one)
    put(server)
    labeller = Labeller(server, client, root, "-vram", "-compute-memory-partition")
    await labeller.until(has(labeller, vram="192G", **{"compute-memory-partition": "spx_nps1"}))
    tree.write(root, Machine(machines.mi300x("CPX").gpus[:1]))
    await labeller.until(lambda: labeller.labels().get("beta.amd.com/gpu.vram.24G") == "8")
    await labeller.until(has(labeller, vram="24G", **{"compute-memory-partition": "cpx_nps1"}))
    assert not any("192G" in name for name in labeller.labels())
    tree.write(root, one)
    await labeller.until(has(labeller, vram="192G", **{"compute-memory-partition": "spx_nps1"}))
    await labeller.end()


async def test_a_driver_that_is_away_leaves_the_labels_and_may_come_late(
    server: UpdatingServer, client: Client, tmp_path: Path
):
    put(server, **{"amd.com/gpu.vram": "8G"})
    labeller = Labeller(server, client, tmp_path, "-vram")
    await labeller.until(lambda: bool(labeller.notes))
    assert "amdgpu is not loaded" in labeller.notes[0]
    assert labeller.labels()["amd.com/gpu.vram"] == "8G"
    tree.write(tmp_path, machines.vegas())
    await labeller.until(has(labeller, vram="16G"))
    await labeller.end()


@pytest.mark.parametrize("code", [500, 403, 429, 404])
async def test_an_api_server_that_fails_is_asked_again(server: UpdatingServer, client: Client, root: Path, code: int):
    put(server)
    server.faults = [Fault(code, "not now", path="/n$") for _ in range(2)]
    labeller = Labeller(server, client, root, "-vram")
    await labeller.until(has(labeller, vram="16G"))
    await labeller.end()
    assert sum("not now" in note for note in labeller.notes) == 1
    assert server.faults == []


async def test_a_node_that_comes_late_or_comes_anew_is_labelled(server: UpdatingServer, client: Client, root: Path):
    labeller = Labeller(server, client, root, "-vram")
    await labeller.until(lambda: bool(labeller.notes))
    assert "'n'" in labeller.notes[0]
    for _ in range(2):
        put(server)
        await labeller.until(has(labeller, vram="16G"))
        server.store.remove("nodes", "n")
    await labeller.end()


async def test_without_the_right_to_watch_labels_are_kept_by_looks(server: UpdatingServer, client: Client, root: Path):
    server.allowed = {("get", "nodes"), ("patch", "nodes")}
    put(server)
    labeller = Labeller(server, client, root, "-vram", "--sleep-interval=100ms")
    await labeller.until(lambda: any("cannot be watched" in note and '"list"' in note for note in labeller.notes))
    await labeller.until(has(labeller, vram="16G"))
    put(server)
    await labeller.until(has(labeller, vram="16G"))
    await labeller.end()


async def test_no_flags_remove_all_labels(server: UpdatingServer, client: Client, root: Path):
    put(server, **{"amd.com/gpu.family": "AI", "beta.amd.com/gpu.family.AI": "8"})
    labeller = Labeller(server, client, root, "--oneshot")
    await labeller.work
    assert labeller.labels() == FOREIGN


async def test_one_bad_name_does_not_keep_the_other_labels_away(server: UpdatingServer, client: Client, tmp_path: Path):
    tree.write(tmp_path, machines.vegas().change("0000:19:00.0", product="(" + 100 * "ü"))
    put(server)
    labeller = Labeller(server, client, tmp_path, "-product-name", "-device-id", "--oneshot")
    await labeller.work
    assert labeller.labels()["amd.com/gpu.device-id"] == "6860"
    assert labeller.labels()["amd.com/gpu.product-name.AMD_Instinct_MI25"] == "1"
    assert [note for note in labeller.notes if "is not written" in note]


# --- A file -----------------------------------------------------------------------------------------------------------


async def test_a_file_is_kept_up_and_goes_at_the_end(server: UpdatingServer, root: Path, tmp_path: Path):
    file = tmp_path / "labels"
    labeller = Labeller(server, None, root, "-device-id", f"--output-file={file}", "--sleep-interval=100ms")
    await labeller.until(file.exists)
    assert file.read_text().splitlines()[0] == "amd.com/gpu.device-id=6860"
    tree.write(root, machines.vegas().change("0000:19:00.0", device="0x6861"), with_dev=False)
    await labeller.until(lambda: "amd.com/gpu.device-id.6861=1" in file.read_text())
    tree.remove(root, "sys/module/amdgpu/drivers/pci:amdgpu")
    await labeller.until(lambda: any("not loaded" in note for note in labeller.notes))
    assert "amd.com/gpu.device-id.6861=1" in file.read_text()
    await labeller.end()
    assert not file.exists()


async def test_a_single_look_without_a_driver_is_an_error(server: UpdatingServer, tmp_path: Path):
    with pytest.raises(BackendError, match="amdgpu is not loaded"):
        await Labeller(server, None, tmp_path, "-vram", "--oneshot", "--output-file=").work


# --- Flags ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dashes", ["-", "--"])
def test_every_kind_is_a_flag_as_go_has_it(dashes: str):
    for kind in KINDS:
        made = command.read_settings([f"{dashes}{kind}"], ENV)
        assert isinstance(made, command.Settings)
        assert (made.kinds, made.node_name) == ((kind,), "n")
    off = command.read_settings(["-vram=false", "-family=t"], ENV)
    assert isinstance(off, command.Settings)
    assert off.kinds == ("family",)


def test_flags_of_logging_are_taken():
    assert command.read_settings(["-logtostderr=true", "-stderrthreshold=INFO", "-v=5", "-log_dir", "/x"], ENV)


def test_help_lists_the_flags():
    text = command.read_settings(["-h"], {})
    assert isinstance(text, str)
    assert all(f"--{kind}" in text for kind in KINDS)


@pytest.mark.parametrize(
    ("args", "env", "words"),
    [
        (["-vram", "family"], ENV, "'family' is no flag"),
        (["-vramm"], ENV, "not defined: -vramm"),
        (["-vram"], {}, "DS_NODE_NAME is not set"),
        (["--sleep-interval=-1s"], ENV, "--sleep-interval"),
        (["-vram=maybe"], ENV, "--vram"),
    ],
)
def test_what_cannot_be_is_said(args: list[str], env: dict[str, str], words: str):
    with pytest.raises(BadFlag, match=words):
        command.read_settings(args, env)

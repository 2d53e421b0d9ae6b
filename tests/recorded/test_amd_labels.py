"""Every recording of AMD's node labeller, asked of ours: the same labels, or a difference that is meant."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from fairlead.backends.amd.topology import read_topology
from fairlead.cluster.access import Access, parse_server
from fairlead.cluster.client import Client
from fairlead.kit.clock import SystemClock
from fairlead.kit.hostroot import HostRoot
from fairlead.programs.labels.amd import command
from fairlead.programs.labels.amd.families import _BY_CORE, _BY_DEVICE, _BY_TARGET
from fairlead.programs.labels.amd.machine import parse_firmware
from tests.amd import machines, tree
from tests.apiserver.server import ApiServer, api_server
from tests.recorded.amd_labels import CASES, labels_of, play, prepare, read, recorded
from tests.recorded.differences_amd_labels import DIFFERENCES
from tests.recorded.held import check_page
from tests.recorded.outcome import judge
from tests.vectors.amd_labels import functions


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with api_server() as server:
        yield server


@pytest.fixture
async def client(server: ApiServer) -> AsyncIterator[Client]:
    client = Client(Access(parse_server(server.url)), SystemClock(), rng=Random(1))
    yield client
    await client.close()


@pytest.mark.parametrize("name", CASES)
async def test_the_labels_are_theirs_or_as_is_meant(name: str, server: ApiServer, client: Client, tmp_path: Path):
    case = CASES[name]
    ours = await play(case, server, client, tmp_path)
    if found := judge(DIFFERENCES, name, recorded(case), ours, ends=False):
        pytest.fail("\n".join(found), pytrace=False)


async def test_labels_that_are_wiped_come_back(server: ApiServer, client: Client, tmp_path: Path):
    """AMD's left them away."""
    case = CASES["059-label-update-ignored"]
    assert case.outputs.steps == [{"step": "labels wiped on the node", "labels_after": {}, "writes": []}]
    settings, stop = read(case, prepare(case, server, tmp_path)), asyncio.Event()
    work = asyncio.create_task(command.run(settings, client, SystemClock(), stop, lambda _: None))
    async with asyncio.timeout(30):
        await server.watched()
        for _ in range(2):
            while labels_of(server) != case.outputs.labels_after:
                await server.store.news()
            server.store.put("nodes", {"metadata": {"name": "node-1"}})
        stop.set()
        await work


# --- Functions of AMD's packages --------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["vega", "mi308", "mi300-cpx"])
def test_render_nodes_belong_to_the_same_kfd_nodes(word: str, tmp_path: Path):
    theirs = functions()["071-package-topology-maps"]["outputs"][word]
    made = {"vega": machines.vegas(), "mi308": machines.mi308(), "mi300-cpx": machines.mi300x("CPX")}[word]
    for path, text in tree.files_of(made).items():
        if re.fullmatch(r".*/nodes/\d+/properties", path):
            file = tmp_path / path.replace("devices/virtual", "class")
            file.parent.mkdir(parents=True)
            file.write_text(text)
    nodes = read_topology(HostRoot(str(tmp_path)), details=False).nodes
    kfd = {str(render): node.number for render, node in nodes.items()}
    parents = {str(render): f"{node.address.rstrip('.')}:0" for render, node in nodes.items()}
    for ours, table in ((kfd, "render_to_node"), (parents, "render_to_parent_id")):
        # Of the kernel without domains AMD's knows no parent. One partition was missing in the recording.
        assert {render: ours[render] for render in theirs[table]} == theirs[table]
        assert len(ours) == {"vega": 2, "mi308": 32, "mi300-cpx": 64}[word]


def test_without_kfd_no_render_node_is_known(tmp_path: Path):
    assert functions()["071-package-topology-maps"]["outputs"]["missing"] == {
        "render_to_node": {},
        "render_to_parent_id": {},
    }
    assert read_topology(HostRoot(str(tmp_path)), details=False).nodes == {}


def test_the_firmware_text_is_read_the_same():
    case = functions()["072-package-firmware-text"]
    theirs = case["outputs"]["fixture"]
    assert parse_firmware(case["inputs"]["text"]) == (theirs["feature"], theirs["firmware"])
    features, firmware = parse_firmware(case["inputs"]["odd_text"])
    assert (features, firmware) == ({"BIG": 2**32 - 1, "LOW": 1}, {"BIG": 2**32 - 1, "LOW": 2**31 - 1})
    assert case["outputs"]["odd_text"]["firmware"]["BIG"] == 2**31 - 1


def test_every_family_has_amds_name_and_can_be_found():
    case = functions()["073-package-family-names"]
    theirs, unknown = case["outputs"]["names"], case["outputs"]["unknown_in_100_159"]
    first, last = case["inputs"]["range"]
    assert sorted([*map(int, theirs), *unknown]) == list(range(first, last + 1))  # these are all
    assert {*_BY_CORE.values(), *_BY_TARGET.values(), *_BY_DEVICE} == set(theirs.values())


# --- The lists --------------------------------------------------------------------------------------------------------


def test_every_recording_is_there():
    assert (len(CASES), len(functions())) == (12, 3)


def test_the_guide_has_every_difference_and_no_other():
    check_page("amd-labels", "## Where Fairlead labels differently", CASES, DIFFERENCES)

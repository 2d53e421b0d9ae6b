"""Every recording of AMD's node labeller, asked of ours: the same labels, or a difference that is meant."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from fairlead.backends.amd.topology import read_topology
from fairlead.cluster.access import Access, parse_server
from fairlead.cluster.client import Client
from fairlead.cluster.errors import NotFound
from fairlead.kit.clock import SystemClock
from fairlead.kit.hostroot import HostRoot
from fairlead.model.errors import NotYet
from fairlead.programs.labels.amd import command
from fairlead.programs.labels.amd.families import _BY_CORE, _BY_DEVICE, _BY_TARGET
from fairlead.programs.labels.amd.machine import BLOCKS, parse_firmware
from tests.amd import machines, tree
from tests.apiserver.server import ApiServer, api_server
from tests.recorded.differences_amd_labels import DIFFERENCES
from tests.vectors.amd_labels import Labelling, functions, labellings

CASES = labellings()
GUIDE = Path(__file__).parents[2] / "docs/guide/amd-labels.md"
LONG = "A_very_long_product_name__with_odd_characters_and_more_than_sixty-three_of_them_OAM_x"
THEIRS = CASES["057-label-long-name"].outputs.labels_after["amd.com/gpu.product-name"]
MACHINES = {"mi210": machines.mi210, "vega": machines.vegas}
BLOCK_NUMBERS = dict(zip((1, 2, 3, 4, 5, 6, 7, 8, 10, 11), BLOCKS, strict=True))  # as libdrm counts them
# The differences of a case, and the labels that are others with ours; None: ours has no such label.
OTHERWISE: dict[str, tuple[str, dict[str, str | None]]] = {
    "055-label-none": (
        "stale",
        dict.fromkeys(
            (
                "amd.com/gpu.device-id.740f",
                "beta.amd.com/gpu.family.HPC",
                "beta.amd.com/gpu.firmware.VCE.fw.1",
            )
        ),
    ),
    "057-label-long-name": (
        "cut",
        {
            "amd.com/gpu.product-name": LONG[:63],
            "beta.amd.com/gpu.product-name": LONG[:63],
            f"beta.amd.com/gpu.product-name.{LONG[:45]}": "8",
            f"beta.amd.com/gpu.product-name.{THEIRS}": None,
        },
    ),
    "061-label-version-files-missing": (
        "empty family product",
        {
            "amd.com/gpu.driver-src-version": None,
            "amd.com/gpu.driver-version": None,
            "amd.com/gpu.family": "AI",
            "beta.amd.com/gpu.family": "AI",
            "beta.amd.com/gpu.family.AI": "8",
            "amd.com/gpu.product-name": "AMD_Instinct_MI210",
            "beta.amd.com/gpu.product-name": "AMD_Instinct_MI210",
            "beta.amd.com/gpu.product-name.AMD_Instinct_MI210": "8",
        },
    ),
    "066-label-libdrm-missing-blocks": (
        "firmware-block",
        {
            f"beta.amd.com/gpu.firmware.{block}.{version}": None
            for block, version in (
                *((block, "feat.0") for block in ("MC", "UVD", "VCE")),
                *((block, "fw.0") for block in ("MC", "UVD", "VCE")),
                *((block, "feat.35") for block in ("CE", "PFP")),
                *((block, "fw.148") for block in ("CE", "PFP")),
                *((block, "feat.1") for block in ("MEC", "SMC")),
                *((block, "fw.49") for block in ("MEC", "SMC")),
            )
        },
    ),
}


def install(case: Labelling, root: Path) -> None:
    """The machine of a recording. What libdrm said stands where the driver shows the same."""
    sysfs = case.inputs.sysfs
    machine = replace(MACHINES[sysfs.kfd_fixture](), driver=sysfs.driver)
    for pci in sysfs.pci:
        machine = machine.change(pci["bdf"], device=pci["device"], product=pci.get("product", ""))
    tree.write(root, machine)
    for name in ("version", "srcversion") if sysfs.driver else ():
        known = [pci[name] for pci in sysfs.pci if name in pci]
        (root / f"sys/module/amdgpu/{name}").unlink()
        if known:
            (root / f"sys/module/amdgpu/{name}").write_text(f"{known[0]}\n")
    for pci in sysfs.pci:
        at = root / f"sys/bus/pci/devices/{pci['bdf']}"
        (at / "mem_info_vram_total").unlink()
        (at / "vendor").write_text(f"{pci['vendor']}\n")
        if said := case.inputs.libdrm.get(f"card{pci['card']}"):
            (at / "fw_version").mkdir()
            debug = root / f"sys/kernel/debug/dri/{pci['card']}"
            debug.mkdir(parents=True)
            rows = [(BLOCK_NUMBERS[number], version, feature) for number, version, feature in said.firmware]
            for block, version, _ in rows:
                (at / f"fw_version/{BLOCKS[block]}_fw_version").write_text(f"0x{version:08x}\n")
            (debug / "amdgpu_firmware_info").write_text(
                "".join(f"{block} feature version: {f}, firmware version: 0x{v:08x}\n" for block, v, f in rows)
            )
            names = root / "usr/share/libdrm/amdgpu.ids"
            names.parent.mkdir(parents=True, exist_ok=True)
            names.write_text(f"# names\n1.0.0\n{pci['device'][2:]},\t00,\t{said.marketing_name}\n")


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with api_server() as server:
        yield server


@pytest.fixture
async def client(server: ApiServer) -> AsyncIterator[Client]:
    client = Client(Access(parse_server(server.url)), SystemClock(), rng=Random(1))
    yield client
    await client.close()


def prepare(case: Labelling, server: ApiServer, root: Path, *more: str) -> command.Settings:
    install(case, root)
    server.store.put("nodes", {"metadata": {"name": "node-1", "labels": case.inputs.node_labels_before}})
    settings = command.read_settings([*case.inputs.argv[1:], f"--host-root={root}", *more], case.inputs.env)
    assert isinstance(settings, command.Settings)
    return settings


def labels_of(server: ApiServer) -> dict[str, str]:
    labels: dict[str, str] = server.store.get("nodes", "node-1")["metadata"].get("labels", {})
    return labels


async def play(case: Labelling, server: ApiServer, client: Client, root: Path) -> dict[str, str]:
    settings = prepare(case, server, root, "--oneshot")
    await command.run(settings, client, SystemClock(), asyncio.Event(), lambda _: None)
    return labels_of(server)


@pytest.mark.parametrize("name", sorted(CASES.keys() - {"058-label-other-node", "060-label-no-driver"}))
async def test_ours_writes_the_same_labels(name: str, server: ApiServer, client: Client, tmp_path: Path):
    case = CASES[name]
    differences, changes = OTHERWISE.get(name, ("patch", {}))
    assert set(differences.split()) <= DIFFERENCES.keys()
    expected: dict[str, str | None] = {**case.outputs.labels_after, **changes}
    assert all(case.outputs.labels_after.get(label) != value for label, value in changes.items())
    assert await play(case, server, client, tmp_path) == {k: v for k, v in expected.items() if v is not None}
    wanted = ["GET"] if expected == case.inputs.node_labels_before else ["GET", "PATCH"]
    assert [request.method for request in server.requests] == wanted  # AMD's: one PUT of everything


async def test_another_nodes_labels_are_left_alone(server: ApiServer, client: Client, tmp_path: Path):
    case = CASES["058-label-other-node"]
    assert case.outputs.writes == []
    with pytest.raises(NotFound, match="node-2"):
        await play(case, server, client, tmp_path)
    assert labels_of(server) == case.outputs.labels_after
    assert "no-node" in DIFFERENCES


async def test_without_a_driver_nothing_is_written(server: ApiServer, client: Client, tmp_path: Path):
    case = CASES["060-label-no-driver"]
    assert case.outputs.exit == {"returncode": 2}
    with pytest.raises(NotYet, match="amdgpu is not loaded"):
        await play(case, server, client, tmp_path)
    assert server.requests == []
    assert "driver-late" in DIFFERENCES


async def test_labels_that_are_wiped_come_back(server: ApiServer, client: Client, tmp_path: Path):
    """AMD's left them away."""
    case = CASES["059-label-update-ignored"]
    assert case.outputs.steps[0]["labels_after"] == {}
    settings, stop = prepare(case, server, tmp_path), asyncio.Event()
    work = asyncio.create_task(command.run(settings, client, SystemClock(), stop, lambda _: None))
    async with asyncio.timeout(30):
        await server.watched()
        for _ in range(2):
            while labels_of(server) != case.outputs.labels_after:
                await server.store.news()
            server.store.put("nodes", {"metadata": {"name": "node-1"}})
        stop.set()
        await work
    assert "kept" in DIFFERENCES


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
    for ours, recorded in ((kfd, "render_to_node"), (parents, "render_to_parent_id")):
        # Of the kernel without domains AMD's knows no parent. One partition was missing in the recording.
        assert {render: ours[render] for render in theirs[recorded]} == theirs[recorded]
        assert len(ours) == {"vega": 2, "mi308": 32, "mi300-cpx": 64}[word]


def test_the_firmware_text_is_read_the_same():
    recorded = functions()["072-package-firmware-text"]
    theirs = recorded["outputs"]["fixture"]
    assert parse_firmware(recorded["inputs"]["text"]) == (theirs["feature"], theirs["firmware"])
    features, firmware = parse_firmware(recorded["inputs"]["odd_text"])
    assert (features, firmware) == ({"BIG": 2**32 - 1, "LOW": 1}, {"BIG": 2**32 - 1, "LOW": 2**31 - 1})
    assert recorded["outputs"]["odd_text"]["firmware"]["BIG"] == 2**31 - 1
    assert "firmware-large" in DIFFERENCES


def test_every_family_has_amds_name_and_can_be_found():
    theirs = functions()["073-package-family-names"]["outputs"]["names"]
    assert {*_BY_CORE.values(), *_BY_TARGET.values(), *_BY_DEVICE} == set(theirs.values())


# --- The lists --------------------------------------------------------------------------------------------------------


def test_every_recording_is_there():
    assert (len(CASES), len(functions())) == (12, 3)


def test_the_guide_has_every_difference_and_no_other():
    page = GUIDE.read_text().partition("## Where Fairlead labels differently")[2]
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| (.+?) \|$", page, re.MULTILINE))
    assert rows == DIFFERENCES

"""Recordings of AMD's node labeller: what came of them, laid out flat, and the same asked of ours."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from fairlead.cluster.client import Client
from fairlead.cluster.errors import NotFound
from fairlead.kit.clock import SystemClock
from fairlead.model.errors import NotYet
from fairlead.programs.labels.amd import command
from fairlead.programs.labels.amd.machine import BLOCKS
from tests.amd import machines, tree
from tests.apiserver.server import ApiServer
from tests.recorded.outcome import Outcome
from tests.vectors.amd_labels import Labelling, labellings

CASES = labellings()
NODE = "node-1"
MACHINES = {"mi210": machines.mi210, "vega": machines.vegas}
BLOCK_NUMBERS = dict(zip((1, 2, 3, 4, 5, 6, 7, 8, 10, 11), BLOCKS, strict=True))  # as libdrm counts them


def recorded(case: Labelling) -> Outcome:
    outputs = case.outputs
    for write in outputs.writes:
        assert write["body"]["metadata"]["labels"] == outputs.labels_after
    return {
        **{f"label {name}": value for name, value in outputs.labels_after.items()},
        "requests": [*outputs.reads, *(f"{write['method']} {write['path']}" for write in outputs.writes)],
        "exit": outputs.exit["returncode"],
    }


def install(case: Labelling, root: Path) -> None:
    """The machine of a recording. What libdrm said stands where the driver shows the same."""
    sysfs = case.inputs.sysfs
    machine = replace(MACHINES[sysfs.kfd_fixture](), driver=sysfs.driver)
    assert not sysfs.xcp
    for pci in sysfs.pci:
        (gpu,) = (gpu for gpu in machine.gpus if gpu.address == pci["bdf"])
        assert (pci["card"], pci["render"]) == (gpu.render - 127, gpu.render), pci
        shown = {"numa": pci["numa_node"], "compute": pci["compute"], "memory": pci["memory"]}
        machine = machine.change(pci["bdf"], device=pci["device"], product=pci.get("product", ""), **shown)
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


def prepare(case: Labelling, server: ApiServer, root: Path) -> list[str]:
    """The machine and the node; gives the recording's command line, with our place added."""
    install(case, root)
    server.store.put("nodes", {"metadata": {"name": NODE, "labels": case.inputs.node_labels_before}})
    return [*case.inputs.argv[1:], f"--host-root={root}"]


def read(case: Labelling, words: list[str]) -> command.Settings:
    settings = command.read_settings(words, case.inputs.env)
    assert isinstance(settings, command.Settings)
    return settings


def labels_of(server: ApiServer) -> dict[str, str]:
    labels: dict[str, str] = server.store.get("nodes", NODE)["metadata"].get("labels", {})
    return labels


async def play(case: Labelling, server: ApiServer, client: Client, root: Path) -> Outcome:
    settings = read(case, [*prepare(case, server, root), "--oneshot"])
    with suppress(NotFound, NotYet):  # a labeller that stays tries again
        await command.run(settings, client, SystemClock(), asyncio.Event(), lambda _: None)
    return {
        **{f"label {name}": value for name, value in labels_of(server).items()},
        "requests": [f"{request.method} {request.path}" for request in server.requests],
    }

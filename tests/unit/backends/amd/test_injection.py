"""What a container gets for AMD devices: nodes, or names of a CDI spec that has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.amd import machines, tree
from tests.unit.backends.amd.trees import backend

from fairlead.backends.amd import AmdBackend
from fairlead.model.device import DeviceNode
from fairlead.model.edits import Edits, Grant
from fairlead.model.errors import BackendError, ConfigError
from fairlead.model.names import ResourceName, SlotId

IDS = ["0000:19:00.0", "0000:1a:00.0"]


async def granted(amd: AmdBackend) -> Edits:
    devices = (await amd.discover()).devices
    await amd.close()
    return amd.edits(Grant(ResourceName("amd.com/gpu"), tuple(SlotId(device.id) for device in devices), devices))


def spec_of(directory: Path) -> Any:
    return json.loads((directory / "amd.com-gpu.json").read_bytes())


async def test_a_container_gets_kfd_once_and_the_nodes_of_each_device(tmp_path: Path) -> None:
    tree.write(tmp_path, machines.vegas())
    edits = await granted(backend(tmp_path))
    names = ("kfd", "dri/card1", "dri/renderD128", "dri/card2", "dri/renderD129")
    assert edits == Edits(nodes=tuple(DeviceNode(f"/dev/{name}") for name in names))


async def test_by_cdi_a_container_gets_names_and_the_spec_has_the_nodes(tmp_path: Path) -> None:
    tree.write(tmp_path, machines.vegas())
    directory = tmp_path / "cdi"
    edits = await granted(backend(tmp_path, ways=["cdi-cri"], cdi={"directory": str(directory)}))
    assert edits == Edits(cdi=tuple(f"amd.com/gpu={name}" for name in IDS))
    spec = spec_of(directory)
    assert spec["kind"] == "amd.com/gpu"
    assert spec["containerEdits"] == {"deviceNodes": [{"path": "/dev/kfd", "permissions": "rw"}]}
    assert [device["name"] for device in spec["devices"]] == IDS
    nodes = spec["devices"][0]["containerEdits"]["deviceNodes"]
    assert [node["path"] for node in nodes] == ["/dev/dri/card1", "/dev/dri/renderD128"]


async def test_by_annotation(tmp_path: Path) -> None:
    tree.write(tmp_path, machines.vegas())
    ways = ["nodes", "cdi-annotations"]
    edits = await granted(backend(tmp_path, ways=ways, cdi={"directory": str(tmp_path / "cdi")}))
    assert list(edits.annotations.values()) == [",".join(f"amd.com/gpu={name}" for name in IDS)]
    assert len(edits.nodes) == 5


async def test_nodes_of_another_root_have_their_place_on_the_host(tmp_path: Path) -> None:
    tree.write(tmp_path, machines.vegas())
    directory = tmp_path / "cdi"
    cdi = {"directory": str(directory), "vendor": "x.amd.com"}
    edits = await granted(backend(tmp_path, ways=["cdi-cri"], devRoot=str(tmp_path), cdi=cdi))
    assert edits.cdi[0] == "x.amd.com/gpu=0000:19:00.0"
    spec = json.loads((directory / "x.amd.com-gpu.json").read_bytes())
    node = spec["containerEdits"]["deviceNodes"][0]
    assert (node["path"], node["hostPath"]) == ("/dev/kfd", f"{tmp_path}/dev/kfd")


async def test_a_spec_of_an_earlier_configuration_goes_and_one_of_others_stays(tmp_path: Path) -> None:
    tree.write(tmp_path, machines.vegas())
    directory = tmp_path / "cdi"
    cdi = {"directory": str(directory)}
    await granted(backend(tmp_path, ways=["cdi-cri"], cdi=cdi))
    await granted(backend(tmp_path, cdi=cdi))
    assert not list(directory.iterdir())
    (directory / "amd.com-gpu.json").write_text('{"kind":"amd.com/gpu"}')
    await granted(backend(tmp_path, cdi=cdi))
    assert spec_of(directory) == {"kind": "amd.com/gpu"}


async def test_a_spec_that_cannot_be_written_fails_the_scan(tmp_path: Path) -> None:
    tree.write(tmp_path, machines.vegas())
    (tmp_path / "file").touch()
    amd = backend(tmp_path, ways=["cdi-cri"], cdi={"directory": str(tmp_path / "file/cdi")})
    with pytest.raises(BackendError, match="cannot write the CDI spec"):
        await amd.discover()
    await amd.close()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"hostRoot": "host"}, "hostRoot: 'host' is not an absolute path"),
        ({"devRoot": "/a/../b"}, "devRoot: '/a/../b' is not an absolute path"),
        ({"ways": []}, "ways: give at least one"),
        ({"ways": ["cdi"]}, "cdi-cri"),
        ({"poll": "10ms"}, "poll: 0.01 s is too often"),
        ({"cdi": {"vendor": "-"}}, "cdi.vendor: '-' must start with a letter"),
        ({"health": {"tolerated": {"umc": -1}}}, "tolerated"),
        ({"health": {"check": ["kfd"]}}, "checks"),
        ({"hostroot": "/"}, "hostRoot"),
    ],
)
def test_options_that_make_no_sense_are_named(options: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        backend(tmp_path, **options)
    assert words in str(raised.value)

"""The directory of CDI specs: written when it must be, never half, and only what is ours is taken away."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.clock import FakeClock
from tests.fuzz.hostile import FILES
from tests.toolchain import build_or_skip
from tests.unit.backends.nvidia.cdi import CASES, VECTORS, options_below
from tests.unit.backends.nvidia.tree import library, look_of, plant, put, read_made_up

from fairlead.backends import specdirectory
from fairlead.backends.nvidia import open_backend
from fairlead.backends.nvidia.cdi import publish
from fairlead.backends.nvidia.cdi.driverfiles import DriverFiles
from fairlead.backends.nvidia.cdi.elf import read_soname
from fairlead.backends.nvidia.edits import EditsBuilder
from fairlead.backends.nvidia.hostnodes import HostNodes, find_host_nodes, read_node
from fairlead.backends.nvidia.snapshot import Gpu, MigDevice, Platform, Snapshot
from fairlead.backends.nvidia.spec import Cdi, DeviceListStrategy, Ids, Imex, MigStrategy, Options
from fairlead.inject import cdi
from fairlead.kit import files
from fairlead.model.device import Device
from fairlead.model.edits import Grant
from fairlead.model.errors import BackendError, ConfigError
from fairlead.model.names import DeviceId, ResourceName, SlotId

VENDOR = "k8s.device-plugin.nvidia.com"
VERSION = "550.54.15"
CUT = Gpu("GPU-b", 1, 1, mig_enabled=True, migs=(MigDevice("MIG-GPU-b/1/0", 0, 1, 0, gi_cap=12, ci_cap=13),))
LOOK = Snapshot(Platform.NVML, (Gpu("GPU-a", 0, 0, "0000:3b:00.0"), CUT), driver_version=VERSION)


@pytest.fixture
def options(tmp_path: Path) -> Options:
    """A host with a driver, two GPUs and all the extras."""
    put(tmp_path, f"/usr/lib64/libcuda.so.{VERSION}", library("libcuda.so.1"))
    for node in ("nvidiactl", "nvidia0", "nvidia1", "nvidia-caps/nvidia-cap12", "nvidia-caps/nvidia-cap13", "gdrdrv"):
        put(tmp_path, f"/dev/{node}")
    put(tmp_path, "/dev/nvidia-caps-imex-channels/channel0")
    return Options(
        ways=(DeviceListStrategy.CDI_CRI,),
        host_root=str(tmp_path),
        driver_root_mount=str(tmp_path),
        gdrcopy=True,
        gds=True,
        imex=Imex(channels=(0,)),
        cdi=Cdi(directory=f"{tmp_path}/var/run/cdi"),
    )


def publish_all(options: Options, snapshot: Snapshot = LOOK) -> tuple[HostNodes, tuple[str, ...]]:
    host_nodes = find_host_nodes(options, snapshot.platform, read_made_up)
    return host_nodes, publish(options, snapshot, host_nodes, read_made_up)


def read(options: Options, group: str = "gpu") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((Path(options.cdi.directory) / f"{VENDOR}-{group}.json").read_text())
    return found


def test_files_are_written_once_and_again_when_they_are_gone_or_differ(options: Options) -> None:
    everything = tuple(f"{VENDOR}-{group}.json" for group in ("gpu", "imex-channel", "gdrcopy"))
    assert publish_all(options)[1] == everything
    assert publish_all(options)[1] == ()
    directory = Path(options.cdi.directory)
    (directory / everything[0]).unlink()
    (directory / everything[1]).write_text("{}")
    (directory / everything[2]).chmod(0o600)
    assert publish_all(options)[1] == everything
    assert {path.name for path in directory.iterdir()} == set(everything)
    assert {stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()} == {0o644}


def test_the_mode_does_not_depend_on_the_umask(options: Options) -> None:
    before = os.umask(0o077)
    try:
        publish_all(options)
    finally:
        os.umask(before)
    assert stat.S_IMODE((Path(options.cdi.directory) / f"{VENDOR}-gpu.json").stat().st_mode) == 0o644


def test_a_directory_that_cannot_be_written_is_named_with_a_cure(options: Options) -> None:
    put(Path(options.host_root), "/var/run/cdi")  # a file stands in the way, which stops root too
    with pytest.raises(BackendError, match=rf"cannot write the CDI spec {options.cdi.directory}/.*Make .* writable"):
        publish_all(options)


def test_a_write_that_fails_leaves_no_half_file(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    publish_all(options)
    before = read(options)

    def refuse(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(BackendError, match="No space left on device"):
        publish_all(options, replace(LOOK, gpus=LOOK.gpus[:1]))
    assert read(options) == before
    assert not [path for path in Path(options.cdi.directory).iterdir() if path.name.startswith(".")]


def test_specs_that_are_not_asked_for_any_more_go_and_those_of_others_stay(options: Options) -> None:
    publish_all(options)
    directory = Path(options.cdi.directory)
    (directory / "nvidia.com-gpu.json").write_text("{}")
    (directory / f"{VENDOR}-mofed.json").write_text('{"kind": "somebody.else/mofed"}')
    publish_all(replace(options, gdrcopy=False))
    left = {"nvidia.com-gpu.json", f"{VENDOR}-mofed.json"}
    assert {path.name for path in directory.iterdir()} == left | {f"{VENDOR}-gpu.json", f"{VENDOR}-imex-channel.json"}
    publish_all(replace(options, ways=(DeviceListStrategy.ENVVAR,)))
    assert {path.name for path in directory.iterdir()} == left


def test_specs_of_nvidias_own_plugin_stay(options: Options) -> None:
    directory = Path(options.cdi.directory)
    put(directory, f"{VENDOR}-gpu.json", json.dumps({"kind": f"{VENDOR}/gpu", "devices": [{"name": "GPU-a"}]}).encode())
    put(directory, f"{VENDOR}-gds.json", json.dumps({"kind": f"{VENDOR}/gds", "devices": [{"name": "all"}]}).encode())
    assert publish_all(replace(options, ways=(DeviceListStrategy.ENVVAR,)))[1] == ()
    assert len(list(directory.iterdir())) == 2


def test_a_look_without_gpus_leaves_the_spec_of_running_pods_alone(options: Options) -> None:
    publish_all(options)
    before = read(options)
    publish_all(options, replace(LOOK, gpus=()))
    assert read(options) == before


def test_without_cdi_nothing_is_looked_for(options: Options, tmp_path: Path) -> None:
    _, changed = publish_all(replace(options, ways=(DeviceListStrategy.ENVVAR,), driver_root_mount="/nowhere"))
    assert changed == ()
    assert not Path(options.cdi.directory).exists()


def test_a_driver_that_is_not_there_is_named_with_a_cure(options: Options, tmp_path: Path) -> None:
    empty = tmp_path / "driver-root"
    with pytest.raises(BackendError, match=rf"no libraries of driver {VERSION} below {empty} .*mount the root"):
        publish_all(replace(options, driver_root_mount=str(empty)))


def test_a_whole_gpu_that_is_cut_comes_with_its_instances(options: Options) -> None:
    """With `mig: none` the kubelet hands out the GPU; upstream's spec has no such device."""
    publish_all(options)
    devices = {device["name"]: device["containerEdits"] for device in read(options)["devices"]}
    assert list(devices) == ["GPU-a", "GPU-b", "MIG-GPU-b_1_0"]
    assert [node["path"] for node in devices["GPU-b"]["deviceNodes"]] == [
        "/dev/nvidia1",
        "/dev/nvidia-caps/nvidia-cap12",
        "/dev/nvidia-caps/nvidia-cap13",
    ]
    publish_all(replace(options, mig=MigStrategy.MIXED))
    assert [device["name"] for device in read(options)["devices"]] == ["GPU-a", "MIG-GPU-b_1_0"]


def test_one_name_for_every_gpu_is_there_only_where_it_is_asked_for(options: Options) -> None:
    publish_all(options)
    assert "all" not in [device["name"] for device in read(options)["devices"]]
    publish_all(replace(options, cdi=replace(options.cdi, all=True)))
    last = read(options)["devices"][-1]
    assert last["name"] == "all"
    assert [node["path"] for node in last["containerEdits"]["deviceNodes"]] == [
        "/dev/nvidia0",
        "/dev/nvidia1",
        "/dev/nvidia-caps/nvidia-cap12",
        "/dev/nvidia-caps/nvidia-cap13",
    ]


def test_a_lost_gpu_keeps_its_entry(options: Options) -> None:
    publish_all(options)
    before = read(options)
    first, second = LOOK.gpus
    publish_all(options, replace(LOOK, gpus=(first,), lost=(second,)))
    assert read(options) == before
    publish_all(options, replace(LOOK, gpus=(first, second), lost=(second,)))
    assert read(options) == before


def test_a_gpu_whose_node_is_missing_is_never_left_out_in_silence(options: Options, tmp_path: Path) -> None:
    (tmp_path / "dev/nvidia0").unlink()
    publish_all(options)
    assert read(options)["devices"][0]["containerEdits"] == {"deviceNodes": [{"path": "/dev/nvidia0"}]}


def test_coherent_memory_is_told_when_asked_for(options: Options) -> None:
    snapshot = replace(LOOK, gpus=(replace(LOOK.gpus[0], coherent=True),))
    publish_all(replace(options, cdi=replace(options.cdi, feature_flags=("enable-coherent-annotations",))), snapshot)
    assert read(options)["devices"][0]["annotations"] == {"gpu.nvidia.com/coherent": "true"}
    assert read(options)["cdiVersion"] == "0.6.0"


def test_facts_are_those_of_character_devices_only(tmp_path: Path) -> None:
    facts = read_node(Path("/dev/null"))
    assert facts is not None
    assert (facts.major, facts.minor, facts.mode) == (1, 3, 0o666)
    assert read_node(put(tmp_path, "/dev/nvidia0")) is None
    assert read_node(tmp_path / "missing") is None


def test_nodes_of_a_driver_with_a_root_of_its_own_are_found_there(options: Options, tmp_path: Path) -> None:
    mount = tmp_path / "driver-root"
    put(mount, "/dev/nvidia-uvm")
    own = replace(options, driver_root_mount=str(mount), driver_root="/run/nvidia/driver")
    assert find_host_nodes(own, Platform.NVML, read_made_up).control_nodes == ("/dev/nvidiactl", "/dev/nvidia-uvm")
    assert find_host_nodes(own, Platform.WSL, read_made_up).control_nodes == ()


def test_a_required_imex_channel_that_is_missing_is_an_error(options: Options, tmp_path: Path) -> None:
    (tmp_path / "dev/nvidia-caps-imex-channels/channel0").unlink()
    assert find_host_nodes(options, Platform.NVML, read_made_up).imex_channels == ()
    with pytest.raises(BackendError, match="requested IMEX channel channel0 does not exist"):
        find_host_nodes(replace(options, imex=Imex((0,), required=True)), Platform.NVML, read_made_up)


def test_no_cdi_without_nvml(options: Options) -> None:
    with pytest.raises(BackendError, match="tegra machine"):
        publish_all(options, Snapshot(Platform.TEGRA))


def test_a_vendor_that_cdi_does_not_allow_is_an_error(options: Options) -> None:
    with pytest.raises(BackendError, match=r"vendor '9\.com'"):
        publish_all(replace(options, cdi=replace(options.cdi, vendor="9.com")))


@pytest.mark.parametrize("ids", list(Ids))
@pytest.mark.parametrize("mig", list(MigStrategy))
def test_every_device_that_may_be_handed_out_can_be_resolved(options: Options, ids: Ids, mig: MigStrategy) -> None:
    options = replace(options, ids=ids, mig=mig)
    host_nodes, _ = publish_all(options)
    verdict = check([options.cdi.directory])[0]
    assert verdict["errors"] == {}
    whole = [("GPU-a", "0"), *([("GPU-b", "1")] if mig is MigStrategy.NONE else [])]
    for id_, index in (*whole, ("MIG-GPU-b/1/0", "1:0")):
        devices = (Device(DeviceId(id_), index),)
        edits = EditsBuilder(options).edits(host_nodes, Grant(ResourceName("nvidia.com/gpu"), (SlotId(id_),), devices))
        assert len(edits.cdi) == 3
        assert set(edits.cdi) <= set(verdict["devices"])


def test_the_reference_library_accepts_every_spec(tmp_path: Path) -> None:
    directories = []
    for number, case in enumerate(CASES):
        root = tmp_path / str(number)
        gpus, tree = VECTORS["gpus"][case["gpus"]], VECTORS["trees"][case["tree"]]
        plant(root, tree, gpus)
        options = options_below(root, case["options"])
        options = replace(options, cdi=replace(options.cdi, all=True))
        publish(
            options, look_of(gpus, tree["version"]), find_host_nodes(options, Platform.NVML, read_made_up), read_made_up
        )
        directories.append(options.cdi.directory)
    probes = check(directories)
    assert len(probes) == len(CASES)
    assert [verdict["errors"] for verdict in probes] == [{}] * len(CASES)
    assert all(f"{VENDOR}/gpu=all" in verdict["devices"] for verdict in probes)


def check(directories: list[str]) -> list[dict[str, Any]]:
    done = subprocess.run(
        [build_or_skip("cdicheck"), *directories], capture_output=True, text=True, check=True, timeout=60
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_links_of_a_driver_root_are_followed_inside_it(tmp_path: Path) -> None:
    put(tmp_path, f"/opt/nvidia/libcuda.so.{VERSION}", library("libcuda.so.1"))
    (tmp_path / "usr").mkdir()
    (tmp_path / "usr/lib64").symlink_to("/opt/nvidia")
    (tmp_path / "lib64").symlink_to("usr/lib64")
    driver = DriverFiles(str(tmp_path), VERSION)
    assert driver.directories == ("/opt/nvidia",)
    assert driver.versioned() == (f"/opt/nvidia/libcuda.so.{VERSION}",)


def test_a_link_that_turns_in_circles_is_no_file(tmp_path: Path) -> None:
    put(tmp_path, f"/usr/lib64/libcuda.so.{VERSION}")
    (tmp_path / f"usr/lib64/libloop.so.{VERSION}").symlink_to(f"libloop.so.{VERSION}")
    assert DriverFiles(str(tmp_path), VERSION).versioned() == (f"/usr/lib64/libcuda.so.{VERSION}",)


def test_a_driver_in_an_unusual_place_is_found_beside_nvml(tmp_path: Path) -> None:
    put(tmp_path, f"/opt/driver/libnvidia-ml.so.{VERSION}")
    found = DriverFiles(str(tmp_path), VERSION, library=f"{tmp_path}/opt/driver/libnvidia-ml.so.1")
    assert found.directories == ("/opt/driver",)


def test_a_library_tells_its_name(tmp_path: Path) -> None:
    assert read_soname(put(tmp_path, "a", library("libcuda.so.1"))) == "libcuda.so.1"
    assert read_soname(put(tmp_path, "b", library())) == ""
    assert read_soname(put(tmp_path, "c", b"\x7fELF\x02\x01")) == ""
    assert read_soname(put(tmp_path, "d", b"#!/bin/sh\n")) is None
    assert read_soname(put(tmp_path, "e", library("libcuda.so.1")[:150])) is None
    assert read_soname(tmp_path / "missing") is None


@pytest.mark.parametrize("what", ["fifo", "socket", "zero", "nowhere", "large", "loop"])
def test_what_is_no_spec_in_the_place_of_one_is_never_read_and_is_replaced(what: str, tmp_path: Path):
    specs = specdirectory.SpecDirectory(str(tmp_path))
    one = cdi.Device(name="0", container_edits=cdi.ContainerEdits(env=("A=b",)))
    spec = cdi.Spec(kind="example.com/gpu", devices=(one,), container_edits=cdi.ContainerEdits())
    (name,) = specs.publish([spec])
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).unlink()
    FILES[what](tmp_path / name)
    assert not specs.made("example.com/gpu")
    assert specs.withdraw(["example.com/gpu"]) == ()
    assert specs.publish([spec]) == (name,)
    assert (tmp_path / name).read_bytes() == content
    assert not (tmp_path / name).is_symlink()


def test_no_link_that_lies_in_wait_is_written_through(tmp_path: Path):
    (tmp_path / "precious").write_text("mine")
    path = tmp_path / "cdi/spec.json"
    path.parent.mkdir()
    path.with_name(f".spec.json.{os.getpid()}").symlink_to(tmp_path / "precious")
    files.replace(path, b"{}", specdirectory.MODE)
    assert (tmp_path / "precious").read_text() == "mine"
    assert not path.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == specdirectory.MODE


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"cdi": {"vendor": "../../x"}}, r"cdi\.vendor: '\.\./\.\./x' must start with a letter"),
        ({"cdi": {"vendor": "x/y"}}, r"cdi\.vendor: 'x/y' must"),
        ({"cdi": {"vendor": ""}}, r"cdi\.vendor: '' must"),
        ({"cdi": {"vendor": "a\nb"}}, r"cdi\.vendor: 'a\\nb' must"),
        ({"cdi": {"vendor": "a" * 201}}, r"cdi\.vendor: 'a.* has 201 characters; 200 is the limit"),
        ({"cdi": {"directory": "/a/../b"}}, r"cdi\.directory: '/a/\.\./b' is not an absolute path"),
        ({"mps": {"root": "mps"}}, r"mps\.root: 'mps' is not an absolute path"),
        ({"mps": {"root": "/mps", "replicas": {"../../x": 2}}}, r"mps\.replicas: resource name '\.\./\.\./x'"),
        ({"mps": {"root": "/mps", "devices": {"a/../b": ["0"]}}}, r"mps\.devices: resource name 'a/\.\./b'"),
        ({"mps": {"root": "/mps", "replicas": {"a/b": 10**30}}}, r"mps\.replicas: a/b has 10+\. Give 1 to 65536"),
    ],
)
def test_a_name_that_leads_out_of_its_directory_is_refused(changed: dict[str, Any], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        open_backend(changed, FakeClock())

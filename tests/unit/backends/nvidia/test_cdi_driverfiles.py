"""Files of a driver that the recordings do not have: graphics, X.Org, firmware, libraries with a name of their own."""

from __future__ import annotations

from pathlib import Path

from tests.unit.backends.nvidia.tree import library, put

from fairlead.backends.nvidia.cdi.common import READ_ONLY, SOCKET, Hooks, common_edits
from fairlead.backends.nvidia.cdi.devices import Nodes
from fairlead.backends.nvidia.cdi.driverfiles import DriverFiles
from fairlead.backends.nvidia.hostnodes import NodeFacts
from fairlead.inject import cdi

V = "550.54.15"
LIB = "/usr/lib64"


def common(
    root: Path, *, explicit: bool = False, sockets: bool = True, disabled: tuple[str, ...] = ()
) -> cdi.ContainerEdits:
    put(root, f"{LIB}/libcuda.so.{V}")
    driver = DriverFiles(str(root), V, str(root))
    hooks = Hooks("/usr/bin/nvidia-cdi-hook", disabled)
    return common_edits(driver, "/run/nvidia/driver", hooks, explicit=explicit, sockets=sockets)


def mounted(edits: cdi.ContainerEdits) -> dict[str, str]:
    """Where a container finds files of the host's driver."""
    return {mount.host_path.removeprefix("/run/nvidia/driver"): mount.container_path for mount in edits.mounts}


def links(edits: cdi.ContainerEdits) -> list[str]:
    return [arg for hook in edits.hooks if "create-symlinks" in hook.args for arg in hook.args if "::" in arg]


def test_names_by_which_programs_ask_are_made_where_the_host_has_them(tmp_path: Path) -> None:
    put(tmp_path, f"{LIB}/libnvidia-encode.so.{V}", library("libnvidia-encode.so.1"))
    (tmp_path / LIB[1:] / "libnvidia-encode.so.1").symlink_to(f"libnvidia-encode.so.{V}")
    (tmp_path / LIB[1:] / "libnvidia-encode.so").symlink_to("libnvidia-encode.so.1")
    put(tmp_path, f"{LIB}/libnvidia-cfg.so.{V}", library("libnvidia-cfg.so.1"))  # nobody asks for it on this host
    put(tmp_path, f"{LIB}/libnvidia-opticalflow.so.{V}")
    put(tmp_path, f"{LIB}/libnvidia-nvvm70.so.4")
    edits = common(tmp_path)
    assert links(edits) == [
        f"libcuda.so.1::{LIB}/libcuda.so",
        f"libnvidia-encode.so.{V}::{LIB}/libnvidia-encode.so.1",
        f"libnvidia-encode.so.1::{LIB}/libnvidia-encode.so",
        f"libnvidia-opticalflow.so.1::{LIB}/libnvidia-opticalflow.so",
    ]
    assert mounted(edits)[f"{LIB}/libnvidia-nvvm70.so.4"] == f"{LIB}/libnvidia-nvvm70.so.4"


def test_graphics_come_with_their_settings_and_links(tmp_path: Path) -> None:
    put(tmp_path, f"{LIB}/libnvidia-allocator.so.{V}")
    put(tmp_path, f"{LIB}/libnvidia-vulkan-producer.so.{V}")
    put(tmp_path, f"{LIB}/libnvidia-egl-gbm.so.1.1.1")
    put(tmp_path, f"{LIB}/nvidia/xorg/libglxserver_nvidia.so.{V}")
    put(tmp_path, "/usr/lib/xorg/modules/drivers/nvidia_drv.so")
    put(tmp_path, "/usr/share/egl/egl_external_platform.d/15_nvidia_gbm.json")
    put(tmp_path, "/etc/vulkan/icd.d/nvidia_icd.json")
    put(tmp_path, "/usr/share/vulkan/icd.d/nvidia_icd.json")  # the one in /etc goes first
    edits = common(tmp_path)
    assert links(edits)[:3] == [
        f"../libnvidia-allocator.so.1::{LIB}/gbm/nvidia-drm_gbm.so",
        f"libnvidia-vulkan-producer.so.{V}::{LIB}/libnvidia-vulkan-producer.so",
        f"libglxserver_nvidia.so.{V}::{LIB}/nvidia/xorg/libglxserver_nvidia.so",
    ]
    found = mounted(edits)
    for path in (f"{LIB}/libnvidia-egl-gbm.so.1.1.1", "/usr/lib/xorg/modules/drivers/nvidia_drv.so"):
        assert found[path] == path
    assert found["/usr/share/egl/egl_external_platform.d/15_nvidia_gbm.json"].startswith("/usr/share/egl/")
    assert found["/etc/vulkan/icd.d/nvidia_icd.json"] == "/etc/vulkan/icd.d/nvidia_icd.json"
    assert "/usr/share/vulkan/icd.d/nvidia_icd.json" not in found


def test_firmware_is_looked_for_where_the_kernel_does(tmp_path: Path) -> None:
    put(tmp_path, "/sys/module/firmware_class/parameters/path", b"/opt/firmware\n")
    put(tmp_path, f"/opt/firmware/nvidia/{V}/gsp_ga10x.bin")
    put(tmp_path, f"/lib/firmware/nvidia/{V}/ucodes_ga10x.bin")
    put(tmp_path, f"/lib/firmware/nvidia/{V}/readme")
    assert {path for path in mounted(common(tmp_path)) if "firmware" in path} == {
        f"/opt/firmware/nvidia/{V}/gsp_ga10x.bin",
        f"/lib/firmware/nvidia/{V}/ucodes_ga10x.bin",
    }


def test_libraries_without_the_drivers_version_come_when_asked_for(tmp_path: Path) -> None:
    put(tmp_path, f"{LIB}/libEGL.so.1.1.0")
    (tmp_path / LIB[1:] / "libEGL.so").symlink_to("libEGL.so.1.1.0")
    assert f"{LIB}/libEGL.so.1.1.0" not in mounted(common(tmp_path))
    assert f"{LIB}/libEGL.so.1.1.0" in mounted(common(tmp_path, explicit=True))


def test_sockets_are_not_read_only_and_can_be_left_out(tmp_path: Path) -> None:
    put(tmp_path, "/var/run/nvidia-fabricmanager/socket")
    put(tmp_path, "/usr/bin/nvidia-smi")  # not to be executed: no program
    edits = common(tmp_path)
    assert [(m.container_path, m.options) for m in edits.mounts if "libcuda" not in m.container_path] == [
        ("/var/run/nvidia-fabricmanager/socket", SOCKET)
    ]
    assert [m.options for m in common(tmp_path, sockets=False).mounts] == [READ_ONLY]


def test_hooks_can_be_left_out_one_by_one_or_all(tmp_path: Path) -> None:
    some = common(tmp_path, disabled=("update-ldcache", "create-symlinks"))
    assert [hook.args[:2] for hook in some.hooks] == [
        ("nvidia-cdi-hook", "enable-cuda-compat"),
        ("nvidia-cdi-hook", "disable-device-node-modification"),
        ("nvidia-cdi-hook", "update-application-profile"),
    ]
    assert common(tmp_path, disabled=("all",)).hooks == ()


def test_groups_of_nodes_that_are_not_for_everyone_are_joined(tmp_path: Path) -> None:
    facts = {"a": NodeFacts(1, 2, 0o660, 44), "b": NodeFacts(1, 3, 0o666, 45), "c": NodeFacts(1, 4, 0o660, 0)}
    paths = [f"/dev/{name}" for name in facts]
    nodes = Nodes("/", "/", lambda path: facts.get(path.name))
    assert nodes.edits(paths).additional_gids == (44,)
    assert [node.gid for node in nodes.edits(paths).device_nodes] == [44, 45, None]
    assert Nodes("/", "/", lambda path: facts.get(path.name), gids=False).edits(paths).additional_gids == ()

"""What every container with a GPU gets from a CDI spec, whichever GPU it is: the driver's own files and its hooks."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from fairlead.backends.nvidia.cdi.driverfiles import DriverFiles
from fairlead.backends.nvidia.cdi.elf import read_soname
from fairlead.inject import cdi

READ_ONLY = ("ro", "nosuid", "nodev", "rbind", "rprivate")
SOCKET = ("nosuid", "nodev", "rbind", "rprivate", "noexec")
EXPLICIT_LIBRARIES = (
    "libEGL.so",
    "libGL.so",
    "libGLESv1_CM.so",
    "libGLESv2.so",
    "libGLX.so",
    "libGLdispatch.so",
    "libOpenCL.so",
    "libOpenGL.so",
    "libnvidia-api.so",
    "libnvidia-egl-xcb.so",
    "libnvidia-egl-xlib.so",
)
GRAPHICS_LIBRARIES = (
    "libnvidia-egl-gbm.so.*.*",
    "libnvidia-egl-wayland.so.*.*",
    "libnvidia-egl-wayland2.so.*.*",
    "libnvidia-egl-xcb.so.*.*",
    "libnvidia-egl-xlib.so.*.*",
)
VOID = "NVIDIA_VISIBLE_DEVICES=void"  # so that NVIDIA's own runtime does not inject devices a second time


class Hooks:
    """Calls of NVIDIA's hook program, but for those that were switched off."""

    def __init__(self, program: str, disabled: Iterable[str] = ()) -> None:
        self._program = program
        base = program.rpartition("/")[2]
        self._head = (base, "hook") if base == "nvidia-ctk" else (base,)
        self._disabled = frozenset(disabled)

    def call(self, name: str, *args: str) -> tuple[cdi.Hook, ...]:
        if self._disabled & {name, "all"}:
            return ()
        call = (*self._head, name, *args)
        return (cdi.Hook("createContainer", self._program, call, ("NVIDIA_CTK_DEBUG=false",)),)

    def link(self, links: Iterable[str]) -> tuple[cdi.Hook, ...]:
        """Symbolic links in the container, each as target::link."""
        args = [arg for link in dict.fromkeys(links) for arg in ("--link", link)]
        return self.call("create-symlinks", *args) if args else ()


def common_edits(
    driver: DriverFiles, host_root: str, hooks: Hooks, *, explicit: bool = False, sockets: bool = True
) -> cdi.ContainerEdits:
    """`host_root` is where the driver's root is on the host."""
    libraries = list(dict.fromkeys((*driver.versioned(), *driver.beside("libnvidia-nvvm70.so.*"))))
    if explicit:
        named = (path for name in EXPLICIT_LIBRARIES for path in driver.beside(name))
        libraries = list(dict.fromkeys((*libraries, *named)))
    version = driver.version
    allocator = driver.find_libraries(f"libnvidia-allocator.so.{version}")
    graphics = [
        *(path for pattern in GRAPHICS_LIBRARIES for path in driver.find_libraries(pattern)),
        *driver.find_libraries(f"libnvidia-vulkan-producer.so.{version}"),
        *driver.xorg(),
    ]
    folders = dict.fromkeys(str(PurePosixPath(path).parent) for path in libraries if _is_library(path))
    root = host_root.rstrip("/")

    def mount(path: str, options: tuple[str, ...] = READ_ONLY, target: str = "") -> cdi.Mount:
        return cdi.Mount(root + path, target or path, options)

    return cdi.join(  # each thing once
        [
            cdi.ContainerEdits(
                env=(f"NVIDIA_CTK_LIBCUDA_DIR={':'.join(driver.directories)}", VOID),
                hooks=(
                    *hooks.link(_graphics_links([*allocator, *graphics], version)),
                    *hooks.link(link for path in libraries for link in _library_links(driver, path)),
                    *hooks.call("enable-cuda-compat", f"--host-driver-version={version}"),
                    *hooks.call("update-ldcache", *(arg for folder in folders for arg in ("--folder", folder))),
                    *hooks.call("disable-device-node-modification"),
                    *hooks.call("update-application-profile"),
                ),
                mounts=(
                    *(mount(path) for path in (*libraries, *graphics, *driver.firmware(), *driver.programs())),
                    *(mount(path, target=target) for path, target in driver.settings()),
                    *(mount(path, SOCKET) for path in (driver.sockets() if sockets else ())),
                ),
            )
        ]
    )


def _graphics_links(libraries: Iterable[str], version: str) -> Iterable[str]:
    for path in libraries:
        directory, _, name = path.rpartition("/")
        plain = name.removesuffix(f".{version}")
        if plain == name:
            continue
        if plain == "libnvidia-allocator.so":
            yield f"../libnvidia-allocator.so.1::{directory}/gbm/nvidia-drm_gbm.so"
        elif plain in {"libnvidia-vulkan-producer.so", "libglxserver_nvidia.so"}:
            yield f"{name}::{directory}/{plain}"


def _library_links(driver: DriverFiles, path: str) -> Iterable[str]:
    """Names under which programs ask for a library, where the host has them too."""
    directory, _, name = path.rpartition("/")
    if fnmatchcase(name, "libcuda.so.*.*"):
        yield f"libcuda.so.1::{directory}/libcuda.so"
    elif fnmatchcase(name, "libGLX_nvidia.so.*.*"):
        yield f"{name}::{directory}/libGLX_indirect.so.0"
    elif fnmatchcase(name, "libnvidia-opticalflow.so.*.*"):
        yield f"libnvidia-opticalflow.so.1::{directory}/libnvidia-opticalflow.so"
    if not fnmatchcase(name, "*.*.*"):
        return
    soname = read_soname(driver.real(path))
    if soname is None:
        return
    soname = soname or name
    if soname != name and driver.is_link(f"{directory}/{soname}"):
        yield f"{name}::{directory}/{soname}"
    plain = f"{soname.partition('.so.')[0]}.so"
    if plain != soname and driver.is_link(f"{directory}/{plain}"):
        yield f"{soname}::{directory}/{plain}"


def _is_library(path: str) -> bool:
    name = path.rpartition("/")[2]
    return fnmatchcase(name, "lib?*.so*") and name.rpartition(".so")[2][:1] in {"", "."}

"""Finds the files of the driver below its root: libraries, firmware, programs, sockets, settings of graphics.

All answers are paths as the root itself would spell them. Links are followed inside the root: an absolute link of a
driver that is mounted somewhere else means a file of that driver, not one of ours.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from pathlib import Path

from fairlead.kit.hostroot import HostRoot
from fairlead.model.errors import BackendError

LIBRARY_DIRECTORIES = (
    "/",
    "/usr/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
    "/usr/lib/aarch64-linux-gnu/nvidia/current",
    "/lib64",
    "/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/lib/x86_64-linux-gnu/nvidia/current",
    "/lib/aarch64-linux-gnu/nvidia/current",
)
PROGRAM_DIRECTORIES = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
PROGRAMS = (
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-imex",
    "nvidia-imex-ctl",
    "nvidia-xconfig",
)
SETTING_DIRECTORIES = ("/etc", "/usr/local/share", "/usr/share")
# Where the container finds a setting, and what it is called there and below one of the directories above.
SETTINGS = (
    ("/usr/share", "glvnd/egl_vendor.d/10_nvidia.json"),
    ("/usr/share", "egl/egl_external_platform.d/15_nvidia_gbm.json"),
    ("/usr/share", "egl/egl_external_platform.d/10_nvidia_wayland.json"),
    ("/usr/share", "egl/egl_external_platform.d/09_nvidia_wayland2.json"),
    ("/usr/share", "egl/egl_external_platform.d/20_nvidia_xcb.json"),
    ("/usr/share", "egl/egl_external_platform.d/20_nvidia_xlib.json"),
    ("/usr/share", "nvidia/nvoptix.bin"),
    ("/usr/share", "X11/xorg.conf.d/10-nvidia.conf"),
    ("/usr/share", "X11/xorg.conf.d/nvidia-drm-outputclass.conf"),
    ("/etc", "OpenCL/vendors/nvidia.icd"),
    ("/etc", "vulkan/icd.d/nvidia_icd.json"),
    ("/etc", "vulkan/icd.d/nvidia_layers.json"),
    ("/etc", "vulkan/implicit_layer.d/nvidia_layers.json"),
    ("/etc", f"vulkan/icd.d/nvidia_icd.{os.uname().machine}.json"),
)
SOCKETS = ("nvidia-persistenced/socket", "nvidia-fabricmanager/socket")
XORG_ROOTS = ("/usr/lib/xorg/modules", "/usr/lib64/xorg/modules", "/usr/X11R6/lib/modules", "/usr/X11R6/lib64/modules")
XORG_PARTS = ("drivers", "extensions", "updates/drivers", "updates/extensions")
FIRMWARE_CLASS = "/sys/module/firmware_class/parameters/path"


class DriverFiles:
    def __init__(self, root: str, version: str, host_root: str = "/", library: str = "") -> None:
        self.root = root
        self.version = version
        self._root = HostRoot(root)
        self._host = HostRoot(host_root)
        # A driver that lies nowhere usual is at least where its management library was found.
        beside = f"/{Path(library).parent.relative_to(root)}" if library.startswith(f"{root.rstrip('/')}/") else ""
        self._searched = (*LIBRARY_DIRECTORIES, *([beside] if beside else []))
        self.directories = self._library_directories()

    def _library_directories(self) -> tuple[str, ...]:
        for name in ("libcuda.so", "libnvidia-ml.so"):
            if self.version and self.find_libraries(f"{name}.{self.version}"):
                found = self.find_libraries(f"lib*.so.{self.version}")
                return tuple(dict.fromkeys(path.rpartition("/")[0] for path in found))
        raise BackendError(
            f"no libraries of driver {self.version or 'of unknown version'} below {self.root} (wanted: libcuda.so "
            f"and libnvidia-ml.so, in {', '.join(self._searched[1:4])} and others). A CDI spec needs its files: "
            f"mount the root of the host's driver at {self.root} (driverRootMount), or use envvar instead of CDI"
        )

    def find_libraries(self, pattern: str) -> tuple[str, ...]:
        return self.find(pattern, self._searched, follow=True)

    def versioned(self) -> tuple[str, ...]:
        """Everything that carries the driver's version, also what lies in vdpau."""
        directories = (*self.directories, *(f"{directory}/vdpau" for directory in self.directories))
        return self.find(f"*.so.{self.version}", directories, follow=True)

    def beside(self, pattern: str) -> tuple[str, ...]:
        """Libraries with a version of their own, in the directories of the driver."""
        return self.find(pattern, self.directories, follow=True)

    def xorg(self) -> tuple[str, ...]:
        own = [
            f"{directory}/{part}"
            for directory in self.directories
            for part in ("nvidia/xorg", *(f"xorg/modules/{part}" for part in XORG_PARTS))
        ]
        directories = (*own, *(f"{root}/{part}" for root in XORG_ROOTS for part in XORG_PARTS))
        names = ("nvidia_drv.so", f"libglxserver_nvidia.so.{self.version}")
        return tuple(path for name in names for path in self.find(name, directories)[:1])

    def firmware(self) -> tuple[str, ...]:
        release = os.uname().release
        directories = [
            f"/lib/firmware/updates/{release}",
            "/lib/firmware/updates",
            f"/lib/firmware/{release}",
            "/lib/firmware",
        ]
        if custom := self._host.read(FIRMWARE_CLASS):
            directories.insert(0, custom)
        places = [f"{directory}/nvidia/{self.version}" for directory in directories]
        return (*self.find("gsp*.bin", places), *self.find("ucodes*.bin", places))

    def programs(self) -> tuple[str, ...]:
        return tuple(path for name in PROGRAMS for path in self.find(name, PROGRAM_DIRECTORIES, accept=_is_program)[:1])

    def sockets(self) -> tuple[str, ...]:
        found = [path for name in SOCKETS for path in self._first(name, ("/run", "/var/run"))]
        return (*found, *self._first("nvidia-mps", ("/tmp",)))  # noqa: S108 - where MPS has it

    def settings(self) -> tuple[tuple[str, str], ...]:
        """Files of the host, and where a container finds each."""
        found: dict[str, str] = {}
        for target, name in SETTINGS:
            for path in self._first(name, SETTING_DIRECTORIES):
                found.setdefault(path, f"{target}/{name}")
        return tuple(found.items())

    def _first(self, name: str, directories: Iterable[str]) -> tuple[str, ...]:
        parent, _, base = name.rpartition("/")
        return self.find(base, (f"{directory}/{parent}".rstrip("/") for directory in directories))[:1]

    def find(
        self,
        pattern: str,
        directories: Iterable[str],
        *,
        accept: Callable[[os.stat_result], bool] | None = None,
        follow: bool = False,
    ) -> tuple[str, ...]:
        """Files (never directories) that match, each once; with `follow` by where their links end."""
        found: dict[str, None] = {}
        for directory in directories:
            for path in self._match(directory, pattern):
                end = self.resolve(path)
                try:
                    facts = self.real(end).stat()
                except OSError:
                    continue
                if stat.S_ISDIR(facts.st_mode) or (accept and not accept(facts)):
                    continue
                found[end if follow else path] = None
        return tuple(found)

    def _match(self, directory: str, pattern: str) -> list[str]:
        base = directory.rstrip("/")
        if "*" not in pattern:
            return [f"{base}/{pattern}"]
        return [f"{base}/{name}" for name in self._root.names(directory) if fnmatchcase(name, pattern)]

    def real(self, path: str) -> Path:
        """A path of the root as this process opens it."""
        return Path(self._root.outside(path))

    def is_link(self, path: str) -> bool:
        return self.real(path).is_symlink()

    def resolve(self, path: str) -> str:
        """The same path without links."""
        return self._root.follow(path)[0] or path


def _is_program(facts: os.stat_result) -> bool:
    return bool(facts.st_mode & 0o111)

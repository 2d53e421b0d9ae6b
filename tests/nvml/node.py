"""A machine with a simulated driver installed: where its files are, and what happens to its GPUs while programs run.

Owns the control directory that the library reads: `script`, `generation` (a counter: the script is new) and `events`.
Must not know who loads the library.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from tests.nvml.driver import Driver, Fault
from tests.nvml.library import compiled
from tests.nvml.root import Plan, make, plan

SINGLE_BIT_ECC, DOUBLE_BIT_ECC, XID = 1, 2, 8
NO_INSTANCE = -1
CONTROL = "FAIRLEAD_NVML"  # names the control directory to the library


class Node:
    def __init__(self, driver: Driver, directory: Path) -> None:
        self.driver = driver
        self.root = directory / "root"
        self.control = directory / "control"
        self._generation = 0
        self._replaced = 0
        self._rules: list[str] = []
        self._plan: Plan = {}
        self.root.mkdir(parents=True)
        self.control.mkdir()
        (self.control / "events").touch()
        self.has_device_nodes = True
        self.become(driver)

    @property
    def library(self) -> Path:
        return compiled()

    @property
    def env(self) -> dict[str, str]:
        """For a child process that shall load the library by its name."""
        return {CONTROL: str(self.control), "LD_LIBRARY_PATH": str(self.library.parent)}

    @contextlib.contextmanager
    def loaded(self) -> Iterator[ModuleType]:
        """nvidia-ml-py in this process, on this driver, not yet initialised. At the end nothing stays initialised."""
        # Here, because most users of a node start another process.
        import pynvml  # type: ignore[import-untyped]  # NVIDIA ships no types

        # Loaded by its path once, the loader knows it by its name from then on, and that is how the binding asks.
        library = ctypes.CDLL(str(self.library), mode=ctypes.RTLD_GLOBAL)
        # Another test may have loaded a copy of it from a machine's own root: that one would answer to the name.
        pynvml.nvmlLib = library
        pynvml._nvmlGetFunctionPointer_cache.clear()
        while library.nvmlShutdown() == 0:
            pass
        before = os.environ.get(CONTROL)
        os.environ[CONTROL] = str(self.control)
        try:
            yield pynvml
        finally:
            self.mend()
            while library.nvmlShutdown() == 0:
                pass
            if before is None:
                del os.environ[CONTROL]
            else:
                os.environ[CONTROL] = before

    def become(self, driver: Driver) -> None:
        """Another inventory: hot-plug, MIG re-partition, another driver version. The files below `root` follow."""
        self.driver = driver
        new = plan(driver)
        self.has_device_nodes &= make(self.root, self._plan, new)
        self._plan = new
        self._publish()

    def become_unseen(self, driver: Driver) -> None:
        """Another inventory that the files below `root` do not show: only a new session of NVML finds it."""
        self.driver = driver
        self._publish()

    def unload(self) -> None:
        """The kernel module is gone: nvmlInit says that the driver is not loaded."""
        (self.control / "script").unlink()

    def load_anew(self) -> None:
        """The kernel module was unloaded and loaded: the kernel shows another object under the same name."""
        self._make_anew("sys/module/nvidia")

    def rebind(self, gpu: int) -> None:
        """The GPU was taken from its driver and given back."""
        self._make_anew(f"sys/bus/pci/drivers/nvidia/{self.driver.gpus[gpu].address}")

    def change(self, gpu: int, **values: Any) -> None:
        """Some values of one GPU are others now."""
        changed = list(self.driver.gpus)
        changed[gpu] = msgspec.structs.replace(changed[gpu], **values)
        self.become(msgspec.structs.replace(self.driver, gpus=tuple(changed)))

    def _make_anew(self, path: str) -> None:
        place = self.root / path
        self._replaced += 1
        old = self.root / f".replaced/{self._replaced}"  # it stays: its inode must not be the new one's
        old.parent.mkdir(exist_ok=True)
        place.rename(old)
        if old.is_symlink():
            place.symlink_to(old.readlink())
        else:
            shutil.copytree(old, place)

    def event(self, gpu: int, kind: int, data: int, gi: int = NO_INSTANCE, ci: int = NO_INSTANCE) -> None:
        self._append(f"event {gpu} {kind} {data} {gi} {ci}")

    def xid(self, gpu: int, code: int, gi: int = NO_INSTANCE, ci: int = NO_INSTANCE) -> None:
        self.event(gpu, XID, code, gi, ci)

    def stray(self, code: int) -> None:
        """An XID of which the driver does not say whose it is."""
        self._append(f"stray {XID} {code}")

    def fail_wait(self, code: int) -> None:
        """One nvmlEventSetWait of each event set fails. For a lasting failure: fault("nvmlEventSetWait", code)."""
        self._append(f"error {code}")

    def fault(self, function: str, code: int, gpu: int = -1) -> None:
        self.become(msgspec.structs.replace(self.driver, faults=(*self.driver.faults, Fault(function, code, gpu))))

    def slow(self, function: str, ms: int, gpu: int = -1) -> None:
        self._rule(f"slow {function} {ms} {gpu}")

    def hang(self, function: str, gpu: int = -1) -> None:
        """Calls do not come back until `mend`. * for all functions."""
        self._rule(f"hang {function} {gpu}")

    def lose(self, gpu: int) -> None:
        """Off the bus: every call on it fails, and a wait that it is registered in fails once."""
        self._rule(f"lost {gpu}")

    def find(self, gpu: int) -> None:
        self._rules.remove(f"lost {gpu}")
        self._publish()

    def mend(self) -> None:
        """No faults, nothing slow, nothing hanging, nothing lost."""
        self._rules.clear()
        self.become(msgspec.structs.replace(self.driver, faults=()))

    def _rule(self, line: str) -> None:
        self._rules.append(line)
        self._publish()

    def _publish(self) -> None:
        fresh = self.control / "script.new"
        fresh.write_text(self.driver.script() + "".join(f"{line}\n" for line in self._rules))
        fresh.replace(self.control / "script")
        self._generation += 1
        # Written in place: the library has this file mapped.
        mode = "r+b" if self._generation > 1 else "w+b"
        with (self.control / "generation").open(mode) as counter:
            counter.write(struct.pack("=Q", self._generation))

    def _append(self, line: str) -> None:
        with (self.control / "events").open("a") as events:
            events.write(f"{line}\n")  # one write: a reader sees whole lines


@contextlib.contextmanager
def install(driver: Driver, directory: Path) -> Iterator[Node]:
    node = Node(driver, directory)
    try:
        yield node
    finally:
        with contextlib.suppress(FileNotFoundError):
            node.mend()  # whoever still hangs in a call goes on

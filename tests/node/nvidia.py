"""Simulated GPUs on the node, and who serves them: NVIDIA's plugin or ours, with the same flags in the same place.

A plugin runs as it would in a container of a DaemonSet: a root of its own, into which the kubelet's sockets, the CDI
directory and the driver are mounted. Containers get their files from the host's side of the same driver.
"""

from __future__ import annotations

import compileall
import os
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import fairlead
from tests.node.cluster import Cluster
from tests.node.rig import settings
from tests.node.rig.places import PLUGINS, POD_RESOURCES
from tests.node.rig.steps import NodeFailedError
from tests.nvml import Driver
from tests.nvml.library import compiled_or_skip
from tests.peers.nvidia.place import CDI, Place
from tests.peers.nvidia.programs import Program, nvidia_plugin, our_plugin

GPU = "nvidia.com/gpu"
DRIVER_ROOT = "/driver-root"  # of the plugin's container, as charts have it
SPEC = settings.CDI / "k8s.device-plugin.nvidia.com-gpu.json"
END_S = 30.0
ZERO = os.makedev(1, 5)
_HOOK = '#!/bin/sh\necho "$@" >>{told}\n'


class Plugin:
    """One of the two. It may be started again after it has ended."""

    def __init__(self, name: str, program: Program, place: Place, log: Path) -> None:
        self.name = name
        self._program = program
        self._place = place
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *flags: str) -> float:
        """Starts it, and answers when that was."""
        command = self._place.command([*self._program.words, *flags], plugins=str(PLUGINS))
        began = time.time()
        with self._log.open("ab") as log:
            # It does not live on if the tests are killed: nobody else knows of it.
            words = ["setpriv", "--pdeathsig", "KILL", *command]
            env = {"PATH": os.environ["PATH"], **self._program.env}
            self._process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env)
        return began

    def end(self) -> float:
        """As the kubelet ends a container. Answers when it was over."""
        if self._process is not None:
            process, self._process = self._process, None
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise NodeFailedError(f"{self.name} did not end within {END_S:.0f} s") from None
        return time.time()

    def said(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""


class Machine:
    """GPUs and their driver on the node. `nvidias` and `ours` are the plugins for them."""

    def __init__(self, place: Place, directory: Path) -> None:
        self.node = place.node
        self.place = place
        self.nvidias = Plugin("NVIDIA's", nvidia_plugin(), place, directory / "nvidias.log")
        self.ours = Plugin("ours", our_plugin(), place, directory / "ours.log")
        self._directory = directory
        self._more: list[Plugin] = []
        self.hook = directory / "nvidia-cdi-hook"
        self._told = directory / "hook.log"
        self.hook.write_text(_HOOK.format(told=self._told))
        self.hook.chmod(0o755)

    def another(self, *flags: str) -> Plugin:
        """One more of ours, beside those that run: as the second pod of a DaemonSet, which waits to be stopped."""
        program = our_plugin(*flags)
        program = replace(program, env={**program.env, "KUBERNETES_SERVICE_HOST": "10.0.0.1"})
        name = f"ours-{len(self._more) + 1}"
        self._more.append(Plugin(name, program, self.place, self._directory / f"{name}.log"))
        return self._more[-1]

    def end(self) -> None:
        for plugin in (self.nvidias, self.ours, *self._more):
            plugin.end()
            print(plugin.said())

    def uuids(self) -> set[str]:
        return {gpu.uuid for gpu in self.node.driver.gpus}

    def hooks(self) -> list[str]:
        """The calls of the CDI hook so far: the runtime makes them for each container."""
        return self._told.read_text().splitlines() if self._told.exists() else []


@contextmanager
def machine(driver: Driver) -> Iterator[Machine]:
    compiled_or_skip()
    compileall.compile_dir(Path(fairlead.__file__).parent, quiet=2)  # as pip does: a start is measured
    directory = Path(tempfile.mkdtemp(prefix="node-gpus-"))
    try:
        with driver.installed(directory / "node") as node:
            make_harmless(node.root / "dev")
            inside = {
                **nvidia_plugin().files,
                CDI: settings.CDI,
                DRIVER_ROOT: node.root,
                "/var/lib/kubelet/pod-resources": POD_RESOURCES.parent,
            }
            made = Machine(Place(node, directory, inside), directory)
            try:
                yield made
            finally:
                made.end()
                SPEC.unlink(missing_ok=True)
    finally:
        shutil.rmtree(directory)


def wait_served(cluster: Cluster, resource: str, count: int) -> None:
    """The kubelet has the list, and has told the API server. Another test's numbers do not count."""
    listed = cluster.wait_offered(resource, count)
    cluster.wait_numbers(resource, count, count, after=listed)


def make_harmless(dev: Path) -> None:
    """The nodes read zeros: with the driver's own numbers a machine with real GPUs would hand those out."""
    for path in dev.rglob("nvidia*"):
        if path.is_char_device():
            path.unlink()
            os.mknod(path, stat.S_IFCHR | 0o666, ZERO)
            path.chmod(0o666)

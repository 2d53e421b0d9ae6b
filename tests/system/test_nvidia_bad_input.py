"""What can be wrong around `fairlead nvidia`, through the command: one clear line, and the end or the wait it promises.

Where each bad input is shown; "here" is this file:

| bad input | here | elsewhere |
|---|---|---|
| library missing | end, wait | `peers/nvidia/test_ours_recorded.py` 077-086, `unit/backends/nvidia/test_scan.py` |
| library of another architecture | end, wait | `test_scan.py` (nonsense in its place, a good one behind it) |
| driver and library of different versions | end, wait | `test_scan.py` (and the other codes of nvmlInit) |
| zero GPUs | wait | `test_scan.py`, `peers/nvidia/test_side_by_side.py` (also with CDI) |
| all GPUs excluded | wait | |
| mixed MIG under single | end, wait | `recorded/test_nvidia.py` (every such recording) |
| malformed UUID, of the driver | the others are offered | `test_scan.py` |
| malformed UUID, in the config file | end | `unit/dialects/nvidia/test_v1.py` |
| unknown target of replicas | end | `unit/dialects/nvidia/test_command.py` |
| replicas 0 or 1 | end | `test_v1.py`, `unit/dialects/nvidia/test_settings_recorded.py` |
| names over 63 characters | end | `test_v1.py`, `unit/model/test_names.py` |
| unwritable CDI directory | end, wait | `unit/backends/nvidia/test_injection.py` (after a good scan: the list stays) |
| one backend fails, another does not | its resource is unharmed (the CDI directory) | |
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.nvml import Driver, gpus
from tests.nvml import Node as Machine
from tests.nvml.library import compiled
from tests.nvml.models import partitioned
from tests.system.process import Program, fairlead, program
from tests.system.rig import GPU, PATIENCE_S
from tests.unit.backends.nvidia.drivers import installed, options

from fairlead.testing import Kubelet

EM_S390 = 22  # no machine that runs these tests
E_MACHINE = 18  # where an ELF file says for which processor it is


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with installed(Driver(gpus=gpus("A100", 2)), tmp_path) as machine:
        yield machine


class Command:
    """`fairlead nvidia` on a machine; its library is found below the driver's root, or nowhere."""

    def __init__(self, machine: Machine, kubelet: Kubelet) -> None:
        self.machine = machine
        self.env = {**machine.env, "LD_LIBRARY_PATH": "/nonexistent"}
        self._words = [
            "nvidia",
            f"--driver-root-ctr-path={machine.root}",
            f"--plugin-dir={kubelet.plugin_dir}",
            f"--kubelet-socket={kubelet.plugin_dir}/kubelet.sock",
            f"--status-socket={kubelet.plugin_dir.parent}/fl.sock",
            f"--pod-resources={kubelet.podresources_socket}",
        ]

    async def ends(self, *more: str) -> str:
        """What it said: one line, after those of its journal."""
        code, _out, err = await fairlead(*self._words, *more, env=self.env)
        assert code == 1
        assert "Traceback" not in err
        *journal, last = err.splitlines()
        assert last.startswith("fairlead nvidia: ")
        assert not any(line.startswith("fairlead nvidia: ") for line in journal), "more than one line"
        return last

    @asynccontextmanager
    async def waits(self, *more: str) -> AsyncIterator[Program]:
        """Until it says that it has nothing to offer. It goes on, and ends when asked."""
        words = [*self._words, "--fail-on-init-error=false", *more]
        async with program("-m", "fairlead", *words, env=self.env) as daemon:
            await daemon.says("nothing-offered")
            yield daemon
            assert not any("Traceback" in line for line in daemon.lines)


@pytest.fixture
def command(machine: Machine, kubelet: Kubelet) -> Command:
    return Command(machine, kubelet)


def library_of(machine: Machine) -> Path:
    (found,) = machine.root.rglob("libnvidia-ml.so.1")
    return found


def spoil_architecture(machine: Machine) -> None:
    path = library_of(machine)
    content = bytearray(compiled().read_bytes())
    content[E_MACHINE : E_MACHINE + 2] = EM_S390.to_bytes(2, "little")
    path.unlink()  # it may be a link to the one that all tests use
    path.write_bytes(content)


def lose_library(machine: Machine) -> None:
    library_of(machine).unlink()


def mismatch(machine: Machine) -> None:
    machine.fault("nvmlInit", 18)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lose_library, ("libnvidia-ml.so.1 was not found", "Install the driver")),
        (spoil_architecture, ("libnvidia-ml.so.1", "must be of this machine's architecture")),
        (mismatch, ("NVML error 18", "are of different versions", "restart the node")),
    ],
)
async def test_a_driver_that_cannot_be_used(command: Command, spoil: Any, words: tuple[str, ...]) -> None:
    spoil(command.machine)
    said = await command.ends()
    assert all(one in said for one in words)
    async with command.waits() as daemon:
        told = await daemon.says("scan-failed")
        assert all(one in told for one in words)


async def test_no_gpu_is_waited_for(command: Command, kubelet: Kubelet) -> None:
    command.machine.become(replace(command.machine.driver, gpus=()))
    async with command.waits() as daemon:
        assert "no device was found" in await daemon.says("nothing-offered")
    assert not kubelet.node().capacity


async def test_mixed_mig_under_single(command: Command) -> None:
    one, other = command.machine.driver.gpus
    cut = (partitioned(one, "3g.20gb", "3g.20gb"), partitioned(other, "1g.5gb"))
    command.machine.become(replace(command.machine.driver, gpus=cut))
    said = await command.ends("--mig-strategy=single")
    assert "Cut all GPUs in the same way, or use mig: mixed" in said
    async with command.waits("--mig-strategy=single") as daemon:
        assert "mig: mixed" in await daemon.says("scan-failed")


async def test_a_malformed_uuid_costs_its_own_gpu_only(command: Command, kubelet: Kubelet) -> None:
    one, other = command.machine.driver.gpus
    command.machine.become(replace(command.machine.driver, gpus=(replace(one, uuid="nonsense"), other)))
    async with program("-m", "fairlead", *command._words, env=command.env) as daemon:
        await kubelet.wait_for_allocatable(GPU, 1, PATIENCE_S)
        assert "'nonsense'" in await daemon.says("scan-problem")


LONG = "n" * 60


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("name: gpu, replicas: 2, devices: [GPU-nonsense]", "GPU-nonsense"),
        ("name: gpus, replicas: 2", "no GPU is offered as nvidia.com/gpus"),
        ("name: gpu, replicas: 0", "number of replicas must be >= 2"),
        ("name: gpu, replicas: 1", "number of replicas must be >= 2, got 1"),
        (f"name: {LONG}, replicas: 2", "must be 63 characters or less"),
    ],
)
async def test_a_config_file_that_cannot_work(command: Command, tmp_path: Path, line: str, words: str) -> None:
    """No setting makes it wait: it would be wrong tomorrow too."""
    file = tmp_path / "nvidia.yaml"
    file.write_text(f"version: v1\nsharing: {{timeSlicing: {{resources: [{{{line}}}]}}}}\n")
    for more in ((), ("--fail-on-init-error=false",)):
        said = await command.ends(f"--config-file={file}", *more)
        assert str(file) in said
        assert "sharing.timeSlicing.resources[0]" in said
        assert words in said


# --- What the dialect cannot say --------------------------------------------------------------------------------------


def write(kubelet: Kubelet, directory: Path, **config: Any) -> str:
    places = {"directory": str(kubelet.plugin_dir), "podResources": str(kubelet.podresources_socket)}
    config |= {"kubelet": places, "status": {"socket": f"{kubelet.plugin_dir.parent}/fl.sock"}}
    file = directory / "fairlead.yaml"
    file.write_text(json.dumps(config))  # JSON is YAML
    return str(file)


async def test_all_gpus_excluded(kubelet: Kubelet, machine: Machine, tmp_path: Path) -> None:
    backend = {"kind": "nvidia", **options(machine)}
    rules = [{"match": {"vendor": "nvidia"}, "exclude": True}, {"resource": GPU}]
    file = write(kubelet, tmp_path, backends=[backend], rules=rules, scan={"required": True})
    async with program("-m", "fairlead", "run", "--config", file, env=machine.env) as daemon:
        assert "2 devices were found, and no rule takes any" in await daemon.says("nothing-offered")


@pytest.mark.parametrize("required", [True, False])
async def test_a_cdi_directory_that_cannot_be_written(
    kubelet: Kubelet, machine: Machine, tmp_path: Path, required: bool
) -> None:
    """And a resource of another backend, which has nothing to do with it."""
    (tmp_path / "no-directory").write_text("")
    cdi = {"directory": str(tmp_path / "no-directory/cdi")}  # also root cannot make it there
    backends = [{"kind": "nvidia", **options(machine, ways=["cdi-cri"], cdi=cdi)}, {"kind": "sim", "fleet": "h100x8"}]
    rules = [{"match": {"backend": "sim"}, "resource": "example.com/other"}, {"resource": GPU}]
    file = write(kubelet, tmp_path, backends=backends, rules=rules, scan={"required": required})
    words = ("run", "--config", file)
    if required:
        code, _out, err = await fairlead(*words, env=machine.env)
        assert code == 4
        assert "backend nvidia: cannot write the CDI spec" in err.splitlines()[-1]
        assert "Traceback" not in err
    else:
        async with program("-m", "fairlead", *words, env=machine.env) as daemon:
            assert "cannot write the CDI spec" in await daemon.says("scan-failed")
            await kubelet.wait_for_allocatable("example.com/other", 8, PATIENCE_S)
            assert GPU not in kubelet.node().capacity

"""Starting and stopping: what is left behind, and what a user is told."""

import asyncio
import gc
import shutil
import subprocess
import sys
from pathlib import Path

import grpc.aio
import pytest
from tests.unit.standin.sample import RESOURCE, SamplePlugin, devices

from fairlead.testing import Kubelet


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


async def live_once(root: Path) -> None:
    async with Kubelet(root) as kubelet, SamplePlugin(kubelet.plugin_dir, devices("a")) as plugin:
        await plugin.register()
        await kubelet.wait_for_allocatable(RESOURCE, 1)
        await kubelet.run_pod("p", {"main": {RESOURCE: 1}})
        await kubelet.restart()


async def test_stopping_leaves_no_task_and_no_open_file(kubelet_root: Path) -> None:
    # gRPC keeps files of its own open while anything uses it; this channel does all along.
    async with grpc.aio.insecure_channel("unix:/none"):
        await live_once(kubelet_root / "first")
        await check_nothing_stays_open(kubelet_root)


async def check_nothing_stays_open(kubelet_root: Path) -> None:
    gc.collect()
    gc.disable()  # what is closed only because nobody holds it any more is not closed
    try:
        before = open_files()
        for turn in range(3):
            await live_once(kubelet_root / f"x{turn}")
        assert asyncio.all_tasks() == {asyncio.current_task()}
        async with asyncio.timeout(10):  # gRPC's own threads close the last files a moment later
            while open_files() > before:  # noqa: ASYNC110 - the kernel tells nobody when a file is closed
                await asyncio.sleep(0.01)
    finally:
        gc.enable()


async def test_a_root_too_long_for_a_socket_is_named(tmp_path: Path) -> None:
    kubelet = Kubelet(tmp_path / ("x" * 100))
    with pytest.raises(ValueError, match="choose a shorter root"):
        await kubelet.start()


async def test_a_kubelet_that_is_not_running_says_how_to_start_it(kubelet_root: Path) -> None:
    with pytest.raises(RuntimeError, match="async with kubelet"):
        await Kubelet(kubelet_root).run_pod("p", {"main": {}})


async def test_waiting_in_vain_tells_what_was_seen(kubelet: Kubelet, plugin: SamplePlugin) -> None:
    with pytest.raises(TimeoutError, match=r"last calls: Register example\.com/resource"):
        await kubelet.wait_for(lambda: False, timeout_s=0.01)


async def test_a_kubelet_that_runs_already_is_not_started_twice(kubelet: Kubelet) -> None:
    with pytest.raises(RuntimeError, match="running already"):
        await kubelet.start()


async def test_a_start_that_fails_can_be_tried_again(kubelet_root: Path) -> None:
    kubelet = Kubelet(kubelet_root)
    kubelet.registry_dir.write_text("in the way")
    with pytest.raises(OSError, match="plugins_registry"):
        await kubelet.start()
    kubelet.registry_dir.unlink()
    async with kubelet:
        assert kubelet.is_running


async def test_a_fault_of_the_stand_in_itself_is_not_swallowed(kubelet_root: Path) -> None:
    kubelet = Kubelet(kubelet_root)
    await kubelet.start()
    async with SamplePlugin(kubelet.plugin_dir, devices("a")) as plugin:
        await plugin.register()
        await kubelet.wait_for_allocatable(RESOURCE, 1)
        shutil.rmtree(kubelet.plugin_dir)  # the next list cannot be written down
        plugin.publish(*devices("a", "b"))
        await kubelet.wait_for(lambda: kubelet.calls[-1].seconds is not None)
    with pytest.raises(ExceptionGroup, match="its own fault"):
        await kubelet.stop()


async def test_pods_that_make_no_sense_are_refused(kubelet: Kubelet) -> None:
    with pytest.raises(ValueError, match="no containers"):
        await kubelet.run_pod("p", {})
    with pytest.raises(ValueError, match="two containers named 'main'"):
        await kubelet.run_pod("p", {"main": {}}, init={"main": {}})


async def test_calls_are_recorded_in_order(kubelet: Kubelet, plugin: SamplePlugin) -> None:
    await kubelet.run_pod("p", {"main": {RESOURCE: 1}})
    assert [call.method for call in kubelet.calls] == ["Register", "GetDevicePluginOptions", "ListAndWatch", "Allocate"]
    assert kubelet.calls[2].seconds is None  # it goes on
    assert kubelet.calls[3].summary in {"Dev-1", "Dev-2"}
    assert kubelet.calls[3].error == ""


def test_another_projects_tests_can_use_the_fixture(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        'pytest_plugins = ["fairlead.testing"]\n'
        "async def test_it(kubelet):\n"
        "    assert kubelet.is_running\n"
        "    assert (await kubelet.run_pod('p', {'main': {}})).phase == 'Running'\n"
    )
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\nfilterwarnings = error\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_a_missing_extra_is_named() -> None:
    block = "import sys; sys.modules['grpc'] = None\nimport fairlead.testing"
    done = subprocess.run([sys.executable, "-c", block], capture_output=True, text=True, check=False)
    assert "fairlead[standin]" in done.stderr.splitlines()[-1]

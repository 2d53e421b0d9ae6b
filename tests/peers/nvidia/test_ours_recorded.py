"""Recordings that only a process can play, with ours in the place of NVIDIA's plugin.

What these machines have depends on where the loader finds libraries, on signals, on the kubelet's own socket.
"""

from __future__ import annotations

import asyncio
import signal
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlead.observe.control import ask
from tests.nvml import from_recording
from tests.peers.nvidia.compare import differences
from tests.peers.nvidia.judge import judge
from tests.peers.nvidia.kubelet import Followed, Kubelet, kubelet
from tests.peers.nvidia.place import Place, needs_root, placed
from tests.peers.nvidia.programs import our_plugin
from tests.peers.nvidia.replay import replay
from tests.recorded.differences import DIFFERENCES
from tests.recorded.nvidia import BY_PROCESS, Seen
from tests.vectors import Vector, drivers, nvidia
from tests.vectors.types import Result

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(needs_root() is not None, reason=str(needs_root())),
]

GPU = "nvidia.com/gpu"
ENV = {"PATH": "/usr/bin", "HOME": "/"}
BY_HAND = {
    "197-env-KUBELET_SOCKET-empty",
    "427-kubelet-socket-custom",
    "434-kubelet-socket-empty",
    "462-life-sighup",
    "465-life-sockets-removed",
    "470-life-gpus-gone-sighup",
    "471-life-config-change-sighup",
    "472-life-config-bad-sighup",
    "473-life-unhealthy-then-sighup",
    "480-life-retry-still-failing",  # as 479 before its file goes
}
PLAYED = [name for name in nvidia() if BY_PROCESS.match(name) and name not in BY_HAND]
# In every run; CI plays them all.
SOME = (
    "077-no-library-fail",
    "095-wsl-default",
    "101-tegra-no-nvml-root",
    "422-libpath-lib64",
    "433-kubelet-refuses-mig-mixed",
    "463-life-kubelet-restart",
    "468-life-sigquit",
    "479-life-retry-after-30s",
)


class Meant(msgspec.Struct, frozen=True):
    """Another outcome than NVIDIA's, on purpose."""

    difference: str
    state: str
    exit_code: int = 0
    sockets: tuple[str, ...] = ()


OTHERWISE: Mapping[str, Meant] = {
    "084-no-library-cdi-nofail": Meant("driver-late", "waiting"),
    "431-kubelet-absent": Meant("kubelet-late", "retrying", sockets=("nvidia-gpu.sock",)),
    "433-kubelet-refuses-mig-mixed": Meant(
        "kubelet-late",
        "retrying",
        sockets=tuple(f"nvidia-mig-{name}.sock" for name in ("1g.5gb", "2g.10gb", "3g.20gb", "7g.40gb")),
    ),
    "435-kubelet-socket-missing-dir": Meant("kubelet-late", "retrying", sockets=("nvidia-gpu.sock",)),
    "436-kubelet-socket-relative": Meant("kubelet-path", "exited", 1),
    "478-life-kubelet-comes-later": Meant("kubelet-late", "retrying", sockets=("nvidia-gpu.sock",)),
}


def check(name: str, seen: Result) -> None:
    recorded = nvidia()[name].result
    meant = OTHERWISE.get(name)
    if meant is None:
        verdict = judge(recorded, seen, Seen())
        assert not verdict.faults
        assert verdict.differences <= DIFFERENCES.keys()
    else:
        assert meant.difference in DIFFERENCES
        assert (seen.state, seen.exit_code, tuple(seen.sockets)) == (meant.state, meant.exit_code, meant.sockets)
        assert not seen.sockets_after_stop
    after = [line for line in differences(recorded, seen) if line.startswith("after ")]
    assert after == []


@pytest.mark.parametrize("name", SOME)
async def test_the_outcome_is_the_recorded_one(name: str) -> None:
    check(name, await replay(our_plugin("--lenient"), nvidia()[name]))


@pytest.mark.peers
@pytest.mark.parametrize("name", [name for name in PLAYED if name not in SOME])
async def test_the_outcome_of_all_others_too(name: str) -> None:
    check(name, await replay(our_plugin("--lenient"), nvidia()[name]))


def test_what_is_meant_otherwise_is_played() -> None:
    assert OTHERWISE.keys() <= set(PLAYED)
    assert nvidia().keys() >= BY_HAND


# --- Those with a story of their own ----------------------------------------------------------------------------------


class Stage(msgspec.Struct):
    place: Place
    end: Kubelet
    elsewhere: Path

    @property
    def stream(self) -> Followed:
        return self.end.followed[GPU]

    def health(self) -> list[str]:
        return [device.health for device in self.stream.lists[-1].devices]

    async def says(self, words: str) -> None:
        await self.end.until(lambda: words in self.end.log)

    async def sighup(self) -> None:
        """Until it has read its settings again, and scanned."""
        before = await self._scanned_s()
        self.end.signal(signal.SIGHUP)
        async with asyncio.timeout(30):
            while await self._scanned_s() == before:  # noqa: ASYNC110 - another process's scan calls nobody
                await asyncio.sleep(0.01)

    async def _scanned_s(self) -> float:
        socket = Path(f"/proc/{self.end.pid}/root/run/fairlead/nvidia.sock")  # in the root that it sees
        status = await asyncio.to_thread(ask, socket, {"ask": "status"})
        (backend,) = status["backends"]
        return float(backend["scanned_s"])


@asynccontextmanager
async def starting(name: str) -> AsyncIterator[tuple[Stage, Vector]]:
    """Ours, with the settings of the recording, on its machine."""
    vector, program = nvidia()[name], our_plugin("--lenient")
    with _elsewhere() as elsewhere:
        inside = {**program.files, "/run/other": elsewhere}
        with placed(from_recording(drivers()[vector.driver]), inside) as place:
            place.write_config(vector.config_file or "")
            async with kubelet(place.plugins) as end:
                command = place.command([*program.words, *vector.argv[1:]])
                await end.serve()
                await end.start(command, {**ENV, **vector.env, **program.env})
                yield Stage(place, end, elsewhere), vector


@contextmanager
def _elsewhere() -> Any:
    with tempfile.TemporaryDirectory(prefix="peer-") as directory:
        yield Path(directory)


@asynccontextmanager
async def serving(name: str) -> AsyncIterator[tuple[Stage, Vector]]:
    async with starting(name) as (stage, vector):
        await stage.end.until(lambda: GPU in stage.end.followed and bool(stage.stream.lists))
        yield stage, vector
        assert await stage.end.stop() == 0


def devices(message: Any) -> dict[str, str]:
    return {one.ID: one.health for one in message.devices}


def recorded(listed: list[dict[str, Any]] | None) -> dict[str, str]:
    return {one["ID"]: one["health"] for one in listed or ()}


async def test_sighup_disturbs_nobody() -> None:
    assert "sighup-differs" in DIFFERENCES
    async with serving("462-life-sighup") as (stage, _vector):
        stream = stage.stream
        for _ in range(2):
            await stage.sighup()
        assert (stream.ended, len(stream.lists), len(stage.end.registrations)) == (None, 1, 1)


async def test_removed_sockets_are_noticed() -> None:
    assert "socket-back" in DIFFERENCES
    async with serving("465-life-sockets-removed") as (stage, vector):
        for name in stage.end.sockets():
            (stage.end.plugins / name).unlink()
        await stage.end.until(lambda: len(stage.end.registrations) == 2 and bool(stage.stream.lists))
        assert stage.end.sockets() == vector.result.sockets


async def test_gpus_that_leave_are_seen_without_a_signal() -> None:
    assert "gpus-gone" in DIFFERENCES
    async with serving("470-life-gpus-gone-sighup") as (stage, vector):
        gone = next(it["driver"] for it in vector.result.actions or () if it["action"] == {"inventory": "zero-gpus"})
        stage.place.node.become(from_recording(gone))
        await stage.end.until(lambda: set(stage.health()) == {"Unhealthy"})
        assert stage.end.exit_code is None


async def test_a_changed_config_is_in_force() -> None:
    async with serving("471-life-config-change-sighup") as (stage, vector):
        change, sighup = vector.result.actions or [{}, {}]
        stage.place.write_config(change["action"]["config_file"])
        stage.end.signal(signal.SIGHUP)
        shared = "nvidia.com/gpu.shared"
        followed = stage.end.followed
        await stage.end.until(lambda: shared in followed and bool(followed[shared].lists))
        assert devices(followed[shared].lists[-1]) == recorded(sighup["devices"][shared])
        await stage.end.until(lambda: stage.end.sockets() == sighup["sockets"])


async def test_a_bad_config_keeps_the_old_one() -> None:
    assert "config-kept" in DIFFERENCES
    async with serving("472-life-config-bad-sighup") as (stage, vector):
        change, _sighup = vector.result.actions or [{}, {}]
        stage.place.write_config(change["action"]["config_file"])
        stage.end.signal(signal.SIGHUP)
        await stage.says("v9")
        assert (stage.end.exit_code, stage.stream.ended, len(stage.stream.lists)) == (None, None, 1)
        assert stage.end.sockets() == vector.result.sockets


async def test_sighup_heals_nobody() -> None:
    assert "sighup-differs" in DIFFERENCES
    async with serving("473-life-unhealthy-then-sighup") as (stage, _vector):
        stage.place.node.xid(0, 79)
        await stage.end.until(lambda: "Unhealthy" in stage.health())
        await stage.sighup()
        assert sorted(stage.health()) == ["Healthy", "Unhealthy"]


@pytest.mark.parametrize("name", ["197-env-KUBELET_SOCKET-empty", "434-kubelet-socket-empty"])
async def test_without_a_kubelets_socket_it_serves_and_waits_to_be_found(name: str) -> None:
    async with starting(name) as (stage, vector):
        await stage.says(" resource-added ")
        (wanted,) = vector.result.resources.values()
        async with asyncio.timeout(30):
            while stage.end.sockets() != vector.result.sockets:  # noqa: ASYNC110 - a file of another process
                await asyncio.sleep(0.01)
        news = asyncio.Event()
        followed = Followed(stage.end.plugins / vector.result.sockets[0], news)
        async with asyncio.timeout(30):
            while not followed.lists:
                await news.wait()
                news.clear()
        assert devices(followed.lists[0]) == recorded(wanted.devices)
        assert stage.end.registrations == []
        assert await stage.end.stop() == 0
        await followed.close()


async def test_a_kubelet_elsewhere_is_registered_with() -> None:
    """Our own sockets stay where they always are, as NVIDIA's do."""
    async with starting("427-kubelet-socket-custom") as (stage, vector):
        await stage.says(" backoff ")  # for want of that kubelet
        async with kubelet(stage.elsewhere) as other:
            await other.serve()
            await stage.says(" await-stream ")
            # Twice, where the notice of that socket comes while a retry is out.
            named = list(dict.fromkeys((it.resource_name, it.endpoint) for it in other.registrations))
        assert named == [(it.resource_name, it.endpoint) for it in vector.result.registrations]
        assert stage.end.sockets() == vector.result.sockets
        assert stage.end.registrations == []
        assert await stage.end.stop() == 0

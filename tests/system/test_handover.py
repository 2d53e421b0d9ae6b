"""A daemon takes over from another on the same node: the kubelet never sees a moment without devices."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from tests.system.process import Program, fairlead, program, write_config
from tests.system.rig import GPU, PATIENCE_S, SIM, Node, running

from fairlead.app import handover as handing_over
from fairlead.backends.sim import open_backend
from fairlead.fronts import handover
from fairlead.fronts.deviceplugin.lifecycle import Phase
from fairlead.kit.clock import SystemClock
from fairlead.model.errors import HostError
from fairlead.testing import Kubelet

SEVEN = "example.com/seven"
IN_POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
TWO = SIM.replace("rules:", f"rules:\n  - {{resource: {SEVEN}, match: {{index: 7}}}}")
UPGRADES = 5
OTHER = {"fleet": {"name": "other", "devices": [{"count": 2, "id": "other-{i}"}]}}
TAKING_OVER = SIM + "takeOver: true\n"


@asynccontextmanager
async def daemon(
    kubelet: Kubelet, root: Path, name: str, *words: str, text: str = SIM, env: dict[str, str] | None = None
) -> AsyncIterator[Program]:
    """One in a pod: its status socket is its own, and it does not end by itself."""
    home = root / name
    home.mkdir()
    flags = ("--config", write_config(home, kubelet, text), "--status-socket", str(home / "status.sock"), *words)
    async with program("-m", "fairlead", "run", *flags, env=IN_POD if env is None else env) as started:
        yield started


@asynccontextmanager
async def lowest(kubelet: Kubelet, resource: str = GPU) -> AsyncIterator[list[int]]:
    """The amounts that the node offered, at every change that the kubelet saw."""
    seen: list[int] = []

    def look() -> bool:
        seen.append(kubelet.node().allocatable.get(resource, 0))
        return False

    watching = asyncio.create_task(kubelet.wait_for(look, 600.0))
    try:
        yield seen
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def test_a_new_daemon_takes_over_and_the_kubelet_keeps_its_devices(kubelet: Kubelet, kubelet_root: Path):
    async with daemon(kubelet, kubelet_root, "old") as old, lowest(kubelet) as offered:
        await kubelet.wait_for_allocatable(GPU, 8)
        offered.clear()
        before = await kubelet.run_pod("before", {"main": {GPU: 2}})
        async with daemon(kubelet, kubelet_root, "new", "--take-over") as new:
            await new.says("taken-over")
            await old.says("handed-over")
            during = await kubelet.run_pod("during", {"main": {GPU: 2}})
            old.send(signal.SIGTERM)
            assert await old.ends() == 0
            after = await kubelet.run_pod("after", {"main": {GPU: 4}})
            assert min(offered) == 8
            pods = (before, during, after)
            assert [pod.phase for pod in pods] == ["Running"] * 3
            assert len({slot for pod in pods for slot in pod.containers["main"].devices[GPU]}) == 8
            assert not [line for line in new.lines if "backoff" in line]


async def test_upgrades_in_a_row_reject_no_pod(kubelet: Kubelet, kubelet_root: Path):
    rejected: list[str] = []
    stop = asyncio.Event()

    async def churn() -> int:
        number = 0
        while not stop.is_set():
            number += 1
            pod = await kubelet.run_pod(f"p{number}", {"main": {GPU: 1}})
            if pod.phase != "Running":
                rejected.append(pod.message)
                break
            await kubelet.delete_pod(pod)
        return number

    async with AsyncExitStack() as stack:
        serving = await stack.enter_async_context(daemon(kubelet, kubelet_root, "n0"))
        await kubelet.wait_for_allocatable(GPU, 8)
        offered = await stack.enter_async_context(lowest(kubelet))
        churning = asyncio.create_task(churn())
        for number in range(1, UPGRADES + 1):
            new = await stack.enter_async_context(daemon(kubelet, kubelet_root, f"n{number}", "--take-over"))
            await new.says(f"taken-over connections={number}")
            serving.send(signal.SIGTERM)
            assert await serving.ends() == 0
            assert rejected == [], (serving.lines, new.lines)
            serving = new
        stop.set()
        assert await churning > UPGRADES
        assert rejected == []
        assert min(offered) == 8
        # What was kept open goes with the kubelet that had opened it.
        await kubelet.restart()
        await kubelet.wait_for_allocatable(GPU, 8)
        assert (await kubelet.run_pod("after", {"main": {GPU: 8}})).phase == "Running"


async def serves(kubelet: Kubelet) -> None:
    """Pods get devices. One that had registered and was killed took them along, until the old one is back."""
    async with asyncio.timeout(20.0):
        number = 0
        while (await kubelet.run_pod(f"after{number}", {"main": {GPU: 8}})).phase != "Running":
            number += 1
            await kubelet.wait_for_allocatable(GPU, 8)


@pytest.mark.parametrize("moment", ["taking-over", "taken-over"])
async def test_a_new_daemon_that_dies_leaves_the_old_one_serving(kubelet: Kubelet, kubelet_root: Path, moment: str):
    async with daemon(kubelet, kubelet_root, "old") as old:
        await kubelet.wait_for_allocatable(GPU, 8)
        async with daemon(kubelet, kubelet_root, "new", "--take-over") as new:
            await new.says(moment)
            await new.kill()
        if moment == "taken-over":
            await old.says("the daemon that took over has ended")
        await serves(kubelet)
        async with daemon(kubelet, kubelet_root, "newer", "--take-over") as newer:
            await newer.says("taken-over")


async def test_a_new_daemon_whose_scans_fail_takes_over_when_one_has_worked(kubelet: Kubelet, tmp_path: Path):
    (tmp_path / "new").mkdir()
    backend = open_backend({}, SystemClock())
    backend.steer({"do": "scan-error"})
    async with running(kubelet, tmp_path) as old, running(kubelet, tmp_path / "new", TAKING_OVER, start=False) as new:
        await old.ready()
        async with lowest(kubelet) as offered:
            new.start({"sim": backend})
            await new.until_fact("take-over-waits", backends=["sim"])
            assert old.phase() is Phase.STREAMING
            assert (await kubelet.run_pod("meanwhile", {"main": {GPU: 1}})).phase == "Running"
            backend.steer({"do": "recover"})
            await new.until_fact("taken-over")
            assert min(offered) == 8


async def test_a_scan_that_fails_for_both_keeps_nobody_from_taking_over(kubelet: Kubelet, tmp_path: Path):
    (tmp_path / "new").mkdir()
    both = [{"sim": open_backend({}, SystemClock()), "broken": open_backend({}, SystemClock())} for _ in range(2)]
    for each in both:
        each["broken"].steer({"do": "scan-error"})
    async with running(kubelet, tmp_path, start=False) as old:
        old.start(both[0])
        await old.ready()
        async with running(kubelet, tmp_path / "new", TAKING_OVER, start=False) as new:
            new.start(both[1])
            await new.until_fact("taken-over")


async def test_a_new_daemon_that_waits_for_a_scan_serves_when_the_old_one_ends(kubelet: Kubelet, tmp_path: Path):
    """It has what works."""
    (tmp_path / "new").mkdir()
    both = [{"sim": open_backend({}, SystemClock()), "other": open_backend(OTHER, SystemClock())} for _ in range(2)]
    both[1]["other"].steer({"do": "scan-error"})
    async with running(kubelet, tmp_path, start=False) as old:
        old.start(both[0])
        await old.ready(count=10)
        async with running(kubelet, tmp_path / "new", TAKING_OVER, start=False) as new:
            new.start(both[1])
            await new.until_fact("take-over-waits", backends=["other"])
            await old.stop()
            await new.ready()


async def test_a_resource_that_the_new_daemon_does_not_offer_leaves(kubelet: Kubelet, kubelet_root: Path):
    async with daemon(kubelet, kubelet_root, "old", text=TWO):
        await kubelet.wait_for_allocatable(SEVEN, 1)
        await kubelet.wait_for_allocatable(GPU, 7)
        async with daemon(kubelet, kubelet_root, "new", "--take-over") as new:
            await new.says("taken-over")
            await kubelet.wait_for_allocatable(SEVEN, 0)
            await kubelet.wait_for_allocatable(GPU, 8)


async def test_without_being_asked_to_it_does_not_take_over(kubelet: Kubelet, kubelet_root: Path):
    async with daemon(kubelet, kubelet_root, "old"):
        await kubelet.wait_for_allocatable(GPU, 8)
        async with daemon(kubelet, kubelet_root, "new") as new:
            await new.says("already served by pid")
            assert await new.ends() == 3


async def test_another_program_that_holds_the_lock_is_named(kubelet: Kubelet, kubelet_root: Path):
    async with daemon(kubelet, kubelet_root, "old"):
        await kubelet.wait_for_allocatable(GPU, 8)
        handover.path_in(kubelet.plugin_dir, "fairlead").unlink()
        async with daemon(kubelet, kubelet_root, "new", "--take-over") as new:
            line = await new.says("already served by pid")
            assert "It cannot hand over: it is another program or an older version" in line
            assert await new.ends() == 3


async def test_one_outside_a_pod_ends_by_itself(kubelet: Kubelet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(handing_over, "LINGER_S", 0.05)
    async with two_nodes(kubelet, tmp_path) as (old, new):
        await new.until_fact("taken-over")
        await old.until_fact("stopped")
        assert (await kubelet.run_pod("after", {"main": {GPU: 8}})).phase == "Running"
        status = new.status()
        assert not status.problems


@asynccontextmanager
async def two_nodes(kubelet: Kubelet, root: Path) -> AsyncIterator[tuple[Node, Node]]:
    """In this process, with one status socket: the new one opens it when the old one has given it up."""
    (root / "new").mkdir()
    async with running(kubelet, root) as old:
        await old.ready()
        async with running(kubelet, root / "new", TAKING_OVER) as new:
            yield old, new


async def test_until_it_has_taken_over_it_says_so(kubelet: Kubelet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    go_on = asyncio.Event()
    inherit = handing_over.TakeOver._inherit

    async def slowly(self: handing_over.TakeOver) -> int:
        await go_on.wait()
        return await inherit(self)

    monkeypatch.setattr(handing_over.TakeOver, "_inherit", slowly)
    async with two_nodes(kubelet, tmp_path) as (old, new):
        await new.until(lambda: new.phase() is Phase.STREAMING)
        assert "another daemon serves until this one has taken over" in new.status().problems
        go_on.set()
        await new.until_fact("taken-over")
        assert not new.status().problems
        assert old.phase() is Phase.SUPERSEDED


async def test_a_new_daemon_that_ends_before_the_old_one_leaves_no_connection_open(kubelet: Kubelet, tmp_path: Path):
    async with two_nodes(kubelet, tmp_path) as (_, new):
        await new.until_fact("taken-over")
    taking_over = new.daemon.entry.taking_over
    assert taking_over is not None
    assert taking_over._line._socket.fileno() < 0


async def packet(kubelet: Kubelet, *packets: bytes) -> bytes:
    """Sends them to the daemon's socket, as any process of this user could; the answer to the last one."""
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stray:
        stray.setblocking(False)
        await loop.sock_connect(stray, str(handover.path_in(kubelet.plugin_dir, "fairlead")))
        for each in packets:
            await loop.sock_sendall(stray, each)
        return await asyncio.wait_for(loop.sock_recv(stray, 65536), 5.0)


async def test_what_is_wrong_with_a_device_is_known_to_the_next_daemon(kubelet: Kubelet, kubelet_root: Path):
    """An upgrade is no cure: a GPU that waits for a reset is not offered again because a new process asks it."""
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(daemon(kubelet, kubelet_root, "old"))
        await kubelet.wait_for_allocatable(GPU, 8)
        order = (
            "sim",
            "--socket",
            str(kubelet_root / "old" / "status.sock"),
            "fail",
            "3",
            "code=burnt",
            "kind=permanent",
        )
        assert (await fairlead(*order))[0] == 0
        await kubelet.wait_for_allocatable(GPU, 7)
        async with lowest(kubelet) as seen:
            new = await stack.enter_async_context(daemon(kubelet, kubelet_root, "new", "--take-over"))
            await new.says("taken-over")
            assert set(seen) <= {7}
        assert "cause=burnt" in await new.says(" unhealthy ")
        assert kubelet.node().allocatable[GPU] == 7


async def test_a_socket_for_which_no_descriptor_was_left_is_there_later(
    kubelet: Kubelet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Else a moment without descriptors makes every take-over impossible until a restart."""
    true_listen, left = handover._listen, 2

    def listen(path: Path) -> socket.socket:
        nonlocal left
        left -= 1
        if left >= 0:
            raise OSError(errno.EMFILE, "Too many open files")
        return true_listen(path)

    monkeypatch.setattr(handover, "_listen", listen)
    monkeypatch.setattr(handing_over, "REENTER_S", 0.01)
    async with running(kubelet, tmp_path, SIM) as node:
        await node.ready()
        async with asyncio.timeout(PATIENCE_S):
            while not node.daemon.entry.handover_socket.exists():  # noqa: ASYNC110 - no event tells it
                await asyncio.sleep(0.01)
        await node.until(lambda: sum(fact.kind == "handover-unavailable" for fact in node.facts) == 2)


@pytest.mark.parametrize(
    "sent",
    [b"{", b"[]", b'{"kind":"nonsense"}', b'{"kind":"give"}', b'{"kind":"hello","version":99}', b"x" * 60_000],
    ids=["half", "list", "unknown", "too early", "another version", "long"],
)
async def test_nonsense_on_its_socket_changes_nothing(kubelet: Kubelet, tmp_path: Path, sent: bytes):
    async with running(kubelet, tmp_path) as node:
        await node.ready()
        answer = await packet(kubelet, sent)
        assert answer == b"" or msgspec.json.decode(answer, type=handover.Message).kind == "refused"
        assert node.phase() is Phase.STREAMING
        (tmp_path / "new").mkdir()
        async with running(kubelet, tmp_path / "new", TAKING_OVER) as new:
            await new.until_fact("taken-over")


async def test_a_successor_that_hangs_does_not_keep_another_from_taking_over(kubelet: Kubelet, tmp_path: Path):
    async with running(kubelet, tmp_path) as node:
        await node.ready()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as hanging:
            hanging.connect(str(handover.path_in(kubelet.plugin_dir, "fairlead")))
            hanging.sendall(b'{"kind":"hello"}')
            (tmp_path / "new").mkdir()
            async with running(kubelet, tmp_path / "new", TAKING_OVER) as new:
                await new.until_fact("taken-over")


async def test_its_socket_is_for_its_own_user_only(kubelet: Kubelet, tmp_path: Path):
    async with running(kubelet, tmp_path) as node:
        await node.ready()
        path = handover.path_in(kubelet.plugin_dir, "fairlead")
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.parent.stat().st_mode & 0o777 == 0o700
    assert not path.parent.exists()


def test_the_folder_stays_while_another_daemon_has_its_socket_in_it(tmp_path: Path):
    first, second = (handover.Door(handover.path_in(tmp_path, name)) for name in ("first", "second"))
    first.close()
    assert handover.path_in(tmp_path, "second").exists()
    second.close()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_another_user_is_not_used(tmp_path: Path):
    folder = handover.path_in(tmp_path, "x").parent
    folder.mkdir()
    if os.geteuid():
        pytest.skip("only root can give a folder away")
    os.chown(folder, 65534, 65534)
    with pytest.raises(HostError, match="is not a directory of this user"):
        handover.Door(handover.path_in(tmp_path, "x"))

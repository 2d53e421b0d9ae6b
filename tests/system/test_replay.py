"""A recording of a daemon is played again: byte for byte, with another configuration, and to explain decisions."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace
from tests.system.desk import DIALECTS, Dialect, desk
from tests.system.process import fairlead
from tests.system.rig import GPU, PATIENCE_S, SIM, Node, running

from fairlead.app import daemon as daemon_module
from fairlead.app import recorder
from fairlead.cli.commands import cli
from fairlead.config.spec import RecordSpec
from fairlead.observe import recording as rec
from fairlead.observe import recordingfile
from fairlead.observe.recordingfile import MAGIC, files_of, read
from fairlead.testing import Kubelet
from fairlead.wire import deviceplugin as dp
from fairlead.wire.proto import decode, encode

SHARE = "nvidia.com/gpu.shared"
TWO_FORMS = """
backends: [{kind: sim, fleet: h100x8}]
rules: [{resource: nvidia.com/gpu, also: [{resource: nvidia.com/gpu.shared, replicas: 4}]}]
"""
GPU_MEMORY = "example.com/gpu-memory"
MEMORY = """
backends: [{kind: sim, fleet: {devices: [{count: 4, memory: 16GiB}]}}]
rules: [{resource: example.com/gpu-memory, memory: {unit: 1GiB}}]
"""
SHARED = SIM.replace("- resource: nvidia.com/gpu", "- {resource: nvidia.com/gpu, replicas: 4}")
PACKED = SIM.replace("- resource: nvidia.com/gpu", "- {resource: nvidia.com/gpu, placement: pack}")
MORE = SIM.replace("- resource: nvidia.com/gpu", "- {resource: nvidia.com/gpu, env: {MORE: given}}")
OTHER_HEALTH = SIM.replace("probation: 20ms", "probation: 1h")


def replay(*words: object) -> Result:
    return CliRunner().invoke(cli, ["replay", *map(str, words)])


def explained(recording: Path, *words: str) -> list[dict[str, Any]]:
    result = CliRunner().invoke(cli, ["explain", "--recording", str(recording), "--json", *words])
    assert result.exit_code == 0, result.output
    found: list[dict[str, Any]] = json.loads(result.stdout)
    return found


@asynccontextmanager
async def recorded(kubelet: Kubelet, root: Path, text: str = SIM) -> AsyncIterator[tuple[Node, Path]]:
    path = root / "flight.rec"
    async with running(kubelet, root, f"{text}\nrecord: {{file: {path}}}\n") as node:
        await node.ready()
        yield node, path


async def live(node: Node) -> None:
    """What happens on a node: pods, a fault that heals, a cordon, another configuration, a restarted kubelet."""
    for number, size in enumerate((1, 2, 3)):
        pod = await node.kubelet.run_pod(f"p{number}", {"main": {GPU: size}})
        assert pod.phase == "Running"
    await node.steer(do="fail", device="7", xid=79)
    await node.kubelet.wait_for_allocatable(GPU, 7)
    refused = await node.kubelet.run_pod("too-large", {"main": {GPU: 5}})
    assert refused.phase == "Failed"
    await node.steer(do="clear", device="7")
    await node.kubelet.wait_for_allocatable(GPU, 8)
    await node.kubelet.restart()
    await node.ready()
    await node.kubelet.run_pod("p9", {"main": {GPU: 2}})


async def test_a_node_is_played_again_byte_for_byte(kubelet: Kubelet, kubelet_root: Path) -> None:
    async with recorded(kubelet, kubelet_root) as (node, path):
        await live(node)
        node.write(f"{MORE}\nrecord: {{file: {path}}}\n")
        await node.reload()
        async with asyncio.timeout(PATIENCE_S):
            while "MORE" not in node.daemon.engine.resources[0].terms.extra.env:  # noqa: ASYNC110 - no event tells it
                await asyncio.sleep(0.01)
        for old in [each for each in node.kubelet.pods if each.name in {"p0", "p1"}]:
            await node.kubelet.delete_pod(old)
        pod = await node.kubelet.run_pod("more", {"main": {GPU: 2}})
        assert pod.containers["main"].env["MORE"] == "given"
        await node.stop()
        node.start()  # the file goes on
        await node.ready()
        await node.kubelet.run_pod("after", {"main": {GPU: 1}})
    result = replay(path)
    assert result.exit_code == 0, result.output
    assert "byte for byte as recorded" in result.output
    report = json.loads(replay(path, "--json").stdout)
    assert report["calls"] >= 10
    assert report["lists"] >= 4
    assert report["differences"] == []
    assert (report["registered"], report["refused"]) == (3, 0)  # at the start, after the kubelet's restart and ours
    framed = [record for each in files_of(path) for record in read(each, []) if isinstance(record, rec.Framed)]
    assert {one.method for one in framed} == {rec.REGISTER, "GetDevicePluginOptions"}
    options = {one.answer for one in framed if one.method != rec.REGISTER}
    sent = {decode(dp.RegisterRequest, one.request) for one in framed if one.method == rec.REGISTER}
    assert {(each.resource_name, encode(each.options)) for each in sent} == {(GPU, answer) for answer in options}


async def test_a_registration_that_the_kubelet_refuses_is_recorded_with_its_reason(
    kubelet: Kubelet, kubelet_root: Path
) -> None:
    reasons = ["not today", ""]

    async def refuse_once(_request: object) -> None:
        kubelet.faults.refuse_register = reasons.pop(0)

    kubelet.callbacks.on_register = refuse_once
    async with recorded(kubelet, kubelet_root) as (_node, path):
        pass
    assert "1 registration (1 refused)" in replay(path).output
    framed = [record for each in files_of(path) for record in read(each, []) if isinstance(record, rec.Framed)]
    assert ["not today" in one.problem for one in framed if one.method == rec.REGISTER] == [True, False]


async def test_a_recording_that_was_changed_is_found_out(kubelet: Kubelet, kubelet_root: Path) -> None:
    async with recorded(kubelet, kubelet_root) as (node, path):
        await live(node)

    def forge(record: rec.Record) -> rec.Record:
        if isinstance(record, rec.Asked) and record.method == "Allocate":
            return replace(record, answer=record.answer.replace(b"GPU-", b"GPX-"))
        return record

    result = replay(changed(path, forge))
    assert result.exit_code == 1
    assert "Allocate of nvidia.com/gpu" in result.output
    assert "GPX-" in result.output


async def test_lists_that_were_never_sent_are_found_out(kubelet: Kubelet, kubelet_root: Path) -> None:
    async with recorded(kubelet, kubelet_root) as (node, path):
        await live(node)

    def forge(record: rec.Record) -> rec.Record:
        """A fault that was not there."""
        if isinstance(record, rec.HealthSettled):
            return replace(record, lists=dict.fromkeys(record.lists, (1, 1)))
        return record

    result = replay(changed(path, forge))
    assert result.exit_code == 1
    assert "the list of nvidia.com/gpu" in result.output


def changed(path: Path, forge: Callable[[Any], rec.Record]) -> Path:
    """The same recording with other records."""
    import struct
    import zlib

    forged = path.with_name("forged.rec")
    contents = [rec.encode([forge(record)]) for each in files_of(path) for record in read(each, [])]
    frames = (struct.pack("<II", len(content), zlib.crc32(content)) + content for content in contents)
    forged.write_bytes(MAGIC + b"".join(frames))
    return forged


async def test_with_another_configuration_the_differences_are_shown(kubelet: Kubelet, kubelet_root: Path) -> None:
    async with recorded(kubelet, kubelet_root) as (node, path):
        await live(node)
    other = kubelet_root / "other.yaml"

    other.write_text(SIM)
    result = replay(path, "--config", other)
    assert result.exit_code == 0, result.output
    assert f"with {other} as it was" in result.output

    other.write_text(SHARED)
    result = replay(path, "--config", other)
    assert result.exit_code == 1
    assert "8 slots on 8 devices, 8 usable" in result.output
    assert "32 slots on 8 devices, 32 usable" in result.output

    other.write_text(OTHER_HEALTH)  # the GPU that healed would still be away
    report = json.loads(replay(path, "--config", other, "--json").stdout)
    lists = [each for each in report["differences"] if each["what"] == "the list of nvidia.com/gpu"]
    assert [(each["recorded"], each["now"]) for each in lists] == [
        ("8 slots on 8 devices, 8 usable", "8 slots on 8 devices, 7 usable")
    ]

    other.write_text(PACKED)
    report = json.loads(replay(path, "--config", other, "--json").stdout)
    assert {each["what"] for each in report["differences"]} <= {"GetPreferredAllocation of nvidia.com/gpu"}


async def test_past_decisions_by_pod_slot_and_time(
    kubelet: Kubelet, kubelet_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "LOOK_S", 0.05)
    async with recorded(kubelet, kubelet_root) as (node, path):
        await live(node)
        recording = node.daemon.recorder
        assert recording is not None
        async with asyncio.timeout(PATIENCE_S):
            while recording._granted:  # noqa: ASYNC110 - the kubelet is asked a while later
                await asyncio.sleep(0.01)
        pod = next(each for each in node.kubelet.pods if each.name == "p2")
        given = sorted(pod.containers["main"].devices[GPU])
    found = explained(path, "--pod", "default/p2")
    assert [(one["call"], sorted(one["slots"])) for one in found] == [("Allocate", given)]
    assert found[0]["pod"] == "default/p2/main"
    by_slot = explained(path, "--slot", given[0])
    assert {one["call"] for one in by_slot} >= {"Allocate", "GetPreferredAllocation"}
    chosen = next(one for one in by_slot if one["reasons"])
    assert {reason["device"] for reason in chosen["reasons"] if reason["picked"]} <= {*chosen["slots"]}
    at = str(found[0]["at_s"])
    moment = explained(path, "--at", iso(float(at)))
    assert found[0] in moment
    text = CliRunner().invoke(cli, ["explain", "--recording", str(path), "--pod", "p2"])
    assert "for default/p2/main" in text.output
    nothing = CliRunner().invoke(cli, ["explain", "--recording", str(path), "--pod", "nobody"])
    assert nothing.exit_code == 2
    assert "no decision is about that" in nothing.output


def iso(at_s: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(at_s, UTC).isoformat()


async def test_a_replay_may_begin_in_the_middle(
    kubelet: Kubelet, kubelet_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full file gives way to another, which begins with a state."""
    monkeypatch.setattr(recordingfile, "BATCH_S", 0.0)
    text = f"{TWO_FORMS}\nrecord: {{file: {kubelet_root / 'flight.rec'}, maxSize: 1MiB}}\n"
    async with running(kubelet, kubelet_root, text) as node:
        await node.ready(GPU, 8)
        file = node.daemon.recorder._file  # type: ignore[union-attr]  # it records
        for number in range(12):
            pod = await node.kubelet.run_pod(f"p{number}", {"main": {(GPU, SHARE)[number % 2]: 1}})
            if number % 3 == 2:
                file.wants_state, file._size = True, file._turn  # as if it were full
            if number % 4 == 3:
                await node.kubelet.delete_pod(pod)
    parts = files_of(kubelet_root / "flight.rec")
    assert len(parts) == 2
    for path in (parts[0], parts[-1], kubelet_root / "flight.rec"):
        alone = kubelet_root / "alone.rec"
        alone.write_bytes(path.read_bytes())
        report = json.loads(replay(alone, "--json").stdout)
        assert report["differences"] == []
        assert report["calls"] > 0


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
async def test_what_a_scheduler_chose_is_given_again(
    dialect: Dialect, kubelet: Kubelet, kubelet_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = record_all(kubelet_root, monkeypatch)
    async with desk(dialect, kubelet, kubelet_root) as at:
        for card in (2, 0):
            await at.bind(f"p{card}", {"main": 5}, card)
        refused = await at.bind("large", {"main": 17}, 1)  # no card has so much
        assert refused.phase == "Failed"
    report = json.loads(replay(path, "--json").stdout)
    assert (report["same"], report["differences"]) == (True, [])
    assert report["calls"] >= 3


async def test_units_of_memory_are_cut_again_as_they_were(
    kubelet: Kubelet, kubelet_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = record_all(kubelet_root, monkeypatch)
    async with running(kubelet, kubelet_root, MEMORY) as node:
        await node.ready(GPU_MEMORY, 64)
        for number, size in enumerate((5, 5, 5, 9)):
            await node.kubelet.run_pod(f"first{number}", {"main": {GPU_MEMORY: size}})
        await node.stop()
        node.start()
        await node.ready(GPU_MEMORY, 64)
        for number, size in enumerate((7, 7, 16)):
            await node.kubelet.run_pod(f"second{number}", {"main": {GPU_MEMORY: size}})
    report = json.loads(replay(path, "--json").stdout)
    assert (report["same"], report["differences"]) == (True, [])


def record_all(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every daemon of the test records, whatever its configuration says."""
    path = root / "all.rec"
    true_init = daemon_module.Daemon.__init__

    def init(self: Any, loaded: Any, **keys: Any) -> None:
        config = replace(loaded.config, record=RecordSpec(file=str(path)))
        true_init(self, replace(loaded, config=config), **keys)

    monkeypatch.setattr(daemon_module.Daemon, "__init__", init)
    return path


@pytest.mark.parametrize("broken", ["_changes", "_emit"])
async def test_a_defect_of_the_recorder_costs_records_and_no_call(
    broken: str, kubelet: Kubelet, kubelet_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_args: object) -> None:
        raise RuntimeError("a defect")

    async with recorded(kubelet, kubelet_root) as (node, _):
        monkeypatch.setattr(recorder.Recorder, broken, fails)
        pod = await node.kubelet.run_pod("p", {"main": {GPU: 2}})
        assert pod.phase == "Running"
        await node.steer(do="fail", device="7", xid=79)
        await node.kubelet.wait_for_allocatable(GPU, 7)
        monkeypatch.undo()
        node.daemon.settle()
        assert any("a defect" in each for each in node.status().problems)


async def test_a_daemon_that_takes_over_records_in_the_same_file(kubelet: Kubelet, kubelet_root: Path) -> None:
    async with recorded(kubelet, kubelet_root) as (node, path):
        await node.kubelet.run_pod("before", {"main": {GPU: 1}})
        await node.daemon.supersede()
        await node.daemon.resume()
        await node.ready()
        await node.kubelet.run_pod("after", {"main": {GPU: 1}})
    report = json.loads(replay(path, "--json").stdout)
    assert (report["same"], report["notes"]) == (True, [])
    assert report["calls"] >= 4


async def test_neither_options_of_backends_nor_secrets_are_in_a_recording(kubelet: Kubelet, kubelet_root: Path) -> None:
    token = kubelet_root / "token-file-name"
    token.write_text("s3cr3t")
    text = SIM.replace("fleet: h100x8", "fleet: h100x8\n    name: cards")
    clean = "cleanup: {command: [/bin/true, --password, pa55word]}"
    text = text.replace("- resource: nvidia.com/gpu", f"- {{resource: nvidia.com/gpu, {clean}}}")
    more = f"{text}\nhttp: {{listen: '127.0.0.1:0', tokenFile: {token}}}\n"
    async with recorded(kubelet, kubelet_root, more) as (node, path):
        await node.kubelet.run_pod("p", {"main": {GPU: 1}})
    records = [record for each in files_of(path) for record in read(each, [])]
    text = str(records)
    for secret in ("s3cr3t", "token-file-name", "h100x8", "pa55word", "/bin/true"):
        assert secret not in text
    assert (path.stat().st_mode & 0o777) == 0o600
    assert replay(path).exit_code == 0


async def test_a_recording_that_cannot_be_written_is_a_problem_and_the_daemon_serves(
    kubelet: Kubelet, kubelet_root: Path
) -> None:
    os.mkfifo(kubelet_root / "flight.rec")
    async with recorded(kubelet, kubelet_root) as (node, _):
        pod = await node.kubelet.run_pod("p", {"main": {GPU: 1}})
        assert pod.phase == "Running"
        async with asyncio.timeout(PATIENCE_S):
            while node.find("problem", topic="record") is None:
                node.daemon.settle()
                await asyncio.sleep(0.01)
        assert any("FIFO" in each for each in node.status().problems)


def test_a_file_that_is_none_is_bad_input(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        result = replay(path)
        assert result.exit_code == 2
        assert str(path) in result.output


async def test_the_demo_is_played_again_byte_for_byte(tmp_path: Path) -> None:
    recording = tmp_path / "demo.rec"
    code, said, wrong = await fairlead("demo", "--once", "--record", str(recording))
    assert code == 0, said + wrong
    report = json.loads(replay(recording, "--json").stdout)
    assert (report["same"], report["differences"], report["notes"]) == (True, [], [])
    assert report["calls"] >= 4

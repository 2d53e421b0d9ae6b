"""`fairlead conformance`, as people use it: our own plugins pass, and what cannot be played is said in one line."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.docs.blocks import ROOT, read_blocks
from tests.system.process import fairlead, program

from fairlead.standin.conformance import SCENARIOS, Command, Hooks, Timeouts, run
from fairlead.standin.conformance.mount import HARD_CODED, LOCK

# A fleet with a device that is unhealthy from the start, so that no scenario is left out for want of one.
FLEET = """
name: odd
devices:
  - {count: 5, id: "W-{i}", vendor: acme, model: Widget, nodes: ["/dev/widget{i}"]}
timeline:
  - {at: 0s, do: fail, device: 3, xid: 79}
"""
CONFIG = """
backends: [{kind: sim, fleet: %s}]
rules: [{resource: acme.example/widget}]
"""
# Two resources, and a device that is trusted again soon.
SEVERAL = """
health: {hold: 100ms, cleanProbes: 1, probeInterval: 500ms, probation: 100ms, flapCount: 1000}
backends: [{kind: sim, fleet: %s}]
rules: [{match: {index: 4}, resource: acme.example/gadget}, {resource: acme.example/widget}]
"""
FAIRLEAD = f"{sys.executable} -m fairlead"
HOOKS = Hooks(f"{FAIRLEAD} sim fail 0 xid=79", f"{FAIRLEAD} sim clear 0 && {FAIRLEAD} clear W-0")
# What our own plugins have no part in: they do not ask for PreStartContainer, have no unhealthy device, have one
# resource, and nothing breaks their devices.
PREPARES, SICK, ONE, UNBROKEN = "C33", "C24", {"C90", "C91"}, {"C87", "C88", "C89"}

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(400)]  # a run takes 100 s on a quiet machine


async def card(*command: str, **how: Any) -> dict[str, str]:
    """How each scenario ended, with the reason of those that did not pass."""
    done = await run(Command(command), SCENARIOS, timeouts=Timeouts.of(20.0), **how)
    odd = {result.scenario.id: f"{result.outcome}: {result.reason}" for result in done.results if result.reason}
    assert done.conforms, odd
    return odd


async def test_our_daemon_passes_every_scenario(tmp_path: Path):
    fleet, config = tmp_path / "fleet.yaml", tmp_path / "f.yaml"
    fleet.write_text(FLEET)
    config.write_text(SEVERAL % fleet)
    ours = (sys.executable, "-m", "fairlead", "run", "--config", str(config))
    odd = await card(*ours, resource="acme.example/widget", hooks=HOOKS)
    assert odd.keys() == {PREPARES}, odd


async def test_the_ten_line_plugin_of_the_readme_passes_every_scenario(tmp_path: Path):
    (block,) = (block for block in read_blocks(ROOT / "README.md") if "@fairlead.plugin" in block.text)
    for number in range(3):
        (tmp_path / f"led{number}").touch()
    program = tmp_path / "blink.py"
    program.write_text(block.text.replace('"/dev"', repr(str(tmp_path))))
    odd = await card(sys.executable, str(program))
    assert odd.keys() == {PREPARES, SICK, *ONE, *UNBROKEN}, odd


async def test_the_card_has_a_line_for_each_scenario_and_the_exit_code_says_whether_it_conforms(tmp_path: Path):
    (tmp_path / "f.yaml").write_text(CONFIG % "small")
    ours = (sys.executable, "-m", "fairlead", "run", "--config", str(tmp_path / "f.yaml"))
    code, out, _ = await fairlead("conformance", "--only", "C01-C03,C24,C84", "--", *ours)
    assert code == 0
    assert [line[:9] for line in out.splitlines() if line.startswith("C")] == [
        "C01  pass",
        "C02  pass",
        "C03  pass",
        "C84  skip",
        "C24  skip",
    ]
    assert "acme.example/widget, 1 device: 3 passed, 2 skipped" in out
    code, out, err = await fairlead("conformance", "--json", "--only", "C01", "--", *ours)
    facts = json.loads(out)
    assert (code, facts["conforms"], facts["totals"]["pass"], facts["suite"]) == (0, True, 1, 2)
    assert facts["scenarios"][0]["link"] == "docs/reference/conformance.md#c01"
    assert err.startswith("C01  pass  registers\n")  # how it goes on, while the answer is for a program


async def test_the_list_names_every_scenario_with_its_level_and_rule():
    code, out, _ = await fairlead("conformance", "--list", "--json")
    listed: list[dict[str, Any]] = json.loads(out)
    assert (code, sorted(each["id"] for each in listed)) == (0, [f"C{n:02}" for n in range(1, len(listed) + 1)])
    assert len(listed) >= 92
    assert all(each["kubelet"] and each["seen"] for each in listed if each["level"] == "required")
    code, out, _ = await fairlead("conformance", "--list", "--only", "C62")
    assert "C62  advised   removes its socket" in out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_run_that_is_broken_off_leaves_nothing_behind(number: signal.Signals, tmp_path: Path):
    told = tmp_path / "told"
    script = f"echo $$ $DP_DIR > {told}.new; mv {told}.new {told}; sleep 60 & wait"
    async with program("-m", "fairlead", "conformance", "--", "sh", "-c", script) as running:
        await asyncio.to_thread(wait_for, told)
        running.send(number)
        assert await running.ends() == 128 + number
        assert not running.lines
    pid, directory = told.read_text().split()
    assert not left(f"/proc/{pid}", directory)


def left(*paths: str) -> list[str]:
    return [path for path in paths if Path(path).exists()]


def wait_for(path: Path) -> None:
    """Nobody tells us of a file: look for it."""
    end_s = time.monotonic() + 20
    while not path.exists():
        assert time.monotonic() < end_s, f"{path} never came"
        time.sleep(0.02)


@pytest.mark.xdist_group("private-mount")
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting takes root")
async def test_a_plugin_that_hard_codes_the_path_gets_a_directory_of_its_own():
    before = HARD_CODED.exists()
    work = (sys.executable, "-m", "tests.unit.standin.conformance.broken")
    pinned = ("env", f"DP_DIR={HARD_CODED}", f"PYTHONPATH={ROOT}", *work)
    code, out, err = await fairlead("conformance", "--private-mount", "--only", "C01-C06,C41,C63", "--", *pinned)
    assert (code, err) == (0, ""), out + err
    assert HARD_CODED.exists() == before
    mounts = await asyncio.to_thread(Path("/proc/self/mounts").read_text)
    assert str(HARD_CODED) not in mounts


@pytest.mark.xdist_group("private-mount")
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting takes root")
async def test_runs_with_a_private_mount_do_not_disturb_each_other():
    """The first to end must not take the mount point from under the others: their plugins still start again."""
    before = HARD_CODED.exists()
    work = (sys.executable, "-m", "tests.unit.standin.conformance.broken")
    pinned = ("env", f"DP_DIR={HARD_CODED}", f"PYTHONPATH={ROOT}", *work)
    parts = ("C01", "C01,C63", "C01,C58,C63-C65")
    ran = await asyncio.gather(
        *(fairlead("conformance", "--private-mount", "--only", part, "--", *pinned) for part in parts)
    )
    assert [(code, err) for code, _, err in ran] == [(0, "")] * len(parts), ran
    assert (HARD_CODED.exists(), LOCK.exists()) == (before, False)


async def test_what_the_plugin_prints_goes_to_the_log_with_what_was_done_to_it(tmp_path: Path):
    log, script = tmp_path / "log", "echo I am here; exit 7"
    code, _, err = await fairlead("conformance", "--log", str(log), "--timeout", "5", "--", "sh", "-c", script)
    assert (code, "exit code 7" in err) == (1, True)
    written = log.read_text()
    assert "I am here\n" in written
    assert "ended with exit code 7" in written
    code, _, err = await fairlead("conformance", "--log", str(tmp_path / "no" / "log"), "--", "true")
    assert (code, "--log" in err) == (2, True)


async def test_a_run_can_be_repeated(tmp_path: Path):
    (tmp_path / "f.yaml").write_text(CONFIG % "small")
    ours = (sys.executable, "-m", "fairlead", "run", "--config", str(tmp_path / "f.yaml"))
    code, out, _ = await fairlead("conformance", "--json", "--repeat", "2", "--only", "C01", "--", *ours)
    assert (code, [card["conforms"] for card in json.loads(out)["runs"]]) == (0, [True, True])
    code, out, _ = await fairlead("conformance", "--repeat", "2", "--only", "C01", "--", *ours)
    assert (code, "2 of 2 runs conform" in out) == (0, True)


async def test_one_scenario_is_explained_with_what_a_kubelet_does():
    code, out, _ = await fairlead("conformance", "--explain", "C41")
    assert code == 0
    assert "Kubelet v1.36.4: It removes every socket when it starts" in out
    assert "manager.go CleanupPluginDirectory" in out
    assert "tests/node/test_restarts.py" in out

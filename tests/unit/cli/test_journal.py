"""`fairlead journal` without a daemon: what it reads, leaves out and refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fairlead.cli import journal as command
from fairlead.cli.commands import cli
from fairlead.kit.clock import SystemClock

NOW_S = 1_700_000_000.0


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SystemClock, "now", lambda _self: NOW_S)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    rows = [
        {"seq": 1, "at_s": NOW_S - 7200.5, "event": "device-found", "device": "GPU-a"},
        {"seq": 2, "at_s": NOW_S - 3600.0, "event": "cordoned", "device": "GPU-b", "reason": "\x1b[2J"},
        {"seq": 3, "at_s": NOW_S - 60.0, "event": "assigned", "devices": ["GPU-a"], "pod": "ns/train"},
    ]
    (tmp_path / "fairlead.journal").write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"seq":4,"at')
    return tmp_path


def run(directory: Path, *args: str) -> Result:
    env = {"FAIRLEAD_STATUS_SOCKET": str(directory / "none.sock")}
    return CliRunner().invoke(cli, ["journal", "--journal-dir", str(directory), *args], env=env)


def shown(directory: Path, *args: str) -> list[int]:
    result = run(directory, "--json", *args)
    assert result.exit_code == 0, result.stderr
    rows: list[dict[str, Any]] = json.loads(result.stdout)
    return [row["seq"] for row in rows]


def test_the_files_are_read_without_a_daemon_and_a_torn_line_gets_a_word(directory: Path):
    result = run(directory)
    assert result.exit_code == 0
    assert [line.split()[1] for line in result.stdout.splitlines()] == ["device-found", "cordoned", "assigned"]
    assert "1 lines are torn" in result.stderr
    assert "What follows is from the files" in result.stderr
    assert "\x1b" not in result.stdout, "a terminal does not obey a file"


@pytest.mark.parametrize(
    ("args", "seqs"),
    [
        (("--since", "2h"), [2, 3]),
        (("--since", "30m"), [3]),
        (("--since", "2023-11-14T21:13:20"), [2, 3]),
        (("--since", "2023-11-14T22:13:21+01:00"), [3]),
        (("--device", "GPU-a"), [1, 3]),
        (("--device", "GPU"), [1, 2, 3]),
        (("--pod", "train"), [3]),
        (("--pod", "ns/train", "--device", "GPU-b"), []),
        (("-n", "2"), [2, 3]),
        (("-n", "1", "--device", "GPU-b"), [2]),
    ],
)
def test_facts_are_chosen_by_time_device_and_pod(directory: Path, args: tuple[str, ...], seqs: list[int]):
    assert shown(directory, *args) == seqs


@pytest.mark.parametrize("since", ["soon", "2026-13-01", "-5m", "9" * 400 + "h"])
def test_a_time_that_is_none_is_explained(directory: Path, since: str):
    result = run(directory, "--since", since)
    assert result.exit_code == 2
    assert "is no time. Give one such as 30m" in result.stderr


def test_a_directory_without_a_journal_is_explained(tmp_path: Path):
    result = run(tmp_path)
    assert result.exit_code == 2
    assert "there is no journal" in result.stderr


def test_the_usual_directory_may_be_missing_and_then_the_daemon_is_asked(tmp_path: Path):
    env = {"FAIRLEAD_STATUS_SOCKET": str(tmp_path / "none.sock"), "FAIRLEAD_JOURNAL_DIR": str(tmp_path / "nowhere")}
    result = CliRunner().invoke(cli, ["journal"], env=env)
    assert result.exit_code == 5
    assert "no daemon answers" in result.stderr


def test_with_a_socket_only_that_daemon_is_asked(directory: Path, monkeypatch: pytest.MonkeyPatch):
    asked: list[Any] = []

    def answer(socket: str | None, request: Any) -> Any:
        asked.append((socket, request))
        return [{"seq": 9, "at_s": NOW_S, "event": "started"}]

    monkeypatch.setattr(command, "ask_daemon", answer)
    assert shown(directory, "--socket", "/s") == [9]
    assert asked == [("/s", {"ask": "journal", "count": 1000})]

"""How the Go side is built: skipped where it cannot be, never in CI; rebuilt when its sources change, not otherwise."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests import toolchain
from tests.toolchain import Program, ToolchainMissingError


@pytest.fixture
def no_go(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> tuple[str, str]:
        raise ToolchainMissingError("no Go toolchain found")

    monkeypatch.setattr(toolchain, "find_go", missing)


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """A program of one file, and a `go` that writes down what it was asked for."""
    for name in ("go.mod", "go.sum", "main.go"):
        (tmp_path / name).write_text(name)
    program = Program(tmp_path, ".", "*.go")
    monkeypatch.setitem(toolchain.PROGRAMS, "probe", program)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(toolchain, "find_go", lambda: ("go", "go1.99"))
    return program


class FakeGo:
    """Answers `go mod download` with these errors, one after the other, then well; builds an empty file."""

    def __init__(self, *problems: str) -> None:
        self.problems = list(problems)
        self.asked: list[str] = []

    def __call__(self, command: list[str], cwd: Path, cgo: str = "") -> subprocess.CompletedProcess[str]:
        self.asked.append(command[1])
        if command[1] == "mod" and self.problems:
            return subprocess.CompletedProcess(command, 1, "", self.problems.pop(0))
        if command[1] == "build":
            Path(command[command.index("-o") + 1]).touch()
        return subprocess.CompletedProcess(command, 0, "", "")


def test_without_go_a_test_is_skipped_with_the_reason(no_go: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no Go toolchain found"):
        toolchain.build_or_skip("h2spec")


def test_without_go_ci_fails(no_go: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no Go toolchain found"):
        toolchain.build_or_skip("h2spec")


def test_a_program_is_built_once_and_again_when_its_source_changes(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = FakeGo()
    monkeypatch.setattr(toolchain, "run", go)
    first = toolchain.build("probe")
    assert toolchain.build("probe") == first
    assert go.asked.count("build") == 1
    (program.module / "main.go").write_text("changed")
    assert toolchain.build("probe") != first
    assert go.asked.count("build") == 2


def test_a_busy_proxy_is_asked_again_after_a_pause(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    go = FakeGo("429 Too Many Requests", "429 Too Many Requests")
    pauses: list[float] = []
    monkeypatch.setattr(toolchain, "run", go)
    monkeypatch.setattr("time.sleep", pauses.append)
    assert toolchain.build("probe").exists()
    assert pauses == [0.0, 5.0, 15.0]


def test_an_unreachable_proxy_is_a_missing_toolchain(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "run", FakeGo("dial tcp: no such host"))
    with pytest.raises(ToolchainMissingError, match="no such host"):
        toolchain.build("probe")

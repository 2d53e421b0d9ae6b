"""The commands before a daemon runs: what they print, as JSON and for people, and how they end."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fairlead.cli import main
from fairlead.cli.commands import cli
from fairlead.cli.demo import play
from fairlead.cli.demo.stage import Stage
from fairlead.cli.demo.story import Event
from fairlead.cli.draw import Cell, duration, memory, paint, short, table
from fairlead.cli.run import WEB, parse
from fairlead.config.load import load
from fairlead.config.reference import EXAMPLE
from fairlead.config.settings import overrides
from fairlead.observe.http import is_loopback


def run(*args: str, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(cli, list(args), env=env)


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "f.yaml"
    path.write_text(EXAMPLE)
    return str(path)


def answer(*args: str) -> Any:
    result = run(*args, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_plan_shows_resources_devices_and_the_rule_each_one_hit(config: str):
    plan = answer("plan", "--config", config)
    assert [(row["name"], row["slots"]) for row in plan["resources"]] == [("nvidia.com/gpu", 7)]
    assert {row["rule"] for row in plan["devices"]} == {"rules[0]", "rules[1]"}
    assert 0 < plan["resources"][0]["worst_bytes"] < plan["resources"][0]["limit_bytes"]
    text = run("plan", "--config", config).stdout
    assert "nvidia.com/gpu" in text
    assert "left out" in text


def test_plan_of_an_oversize_list_ends_with_one_and_the_arithmetic(tmp_path: Path):
    path = tmp_path / "f.yaml"
    path.write_text("backends: [{kind: sim}]\nrules: [{resource: nvidia.com/gpu, replicas: 65536}]\n")
    result = run("plan", "--config", str(path))
    assert result.exit_code == 1
    assert "4,194,304" in result.stdout


@pytest.mark.parametrize(
    "text",
    [
        'backends: [{kind: sim}]\nrules: [{resource: nvidia.com/gpu, match: {model: "*A100*"}}]\n',
        'backends: [{kind: paths, devices: [{name: x, paths: ["/dev/nowhere*"]}]}]\nrules: [{resource: a.io/x}]\n',
    ],
    ids=["no rule matches", "no device"],
)
def test_plan_of_nothing_ends_with_one(tmp_path: Path, text: str):
    path = tmp_path / "f.yaml"
    path.write_text(text)
    result = run("plan", "--config", str(path))
    assert result.exit_code == 1
    assert "nothing would be offered" in result.stdout


def test_plan_tells_of_a_unit_that_had_to_grow(tmp_path: Path):
    path = tmp_path / "f.yaml"
    memory = '{unit: 1MiB, grow: true, ids: "fakeID---{index}---{n}"}'
    path.write_text(f"backends: [{{kind: sim, fleet: h100x8}}]\nrules: [{{resource: a.io/mem, memory: {memory}}}]\n")
    result = run("plan", "--config", str(path))
    assert result.exit_code == 0
    assert "a.io/mem: a unit is 512MiB, not 1MiB: 655,360 slots of 1MiB make a list of " in result.stdout
    assert "1280 x 512 MiB" in result.stdout


def test_plan_tells_what_another_plugins_unit_costs_the_kubelet_where_it_stays(tmp_path: Path):
    path = tmp_path / "f.yaml"
    memory = '{unit: 1MiB, grow: true, ids: "fakeID---{index}---{n}"}'
    rule = f"{{resource: a.io/mem, match: {{index: 0}}, memory: {memory}}}"
    path.write_text(f"backends: [{{kind: sim, fleet: h100x8}}]\nrules: [{rule}]\n")
    result = run("plan", "--config", str(path))
    assert "81920 x 1 MiB" in result.stdout
    assert "a.io/mem: with all 81,920 slots held, a kubelet that restarts is busy with the list for " in result.stdout
    assert "about 1,007 s" in result.stdout


def test_devices_lists_what_backends_find(config: str):
    rows = answer("devices", "--config", config)
    assert len(rows) == 8
    assert rows[0]["backend"] == "sim"
    assert "H100" in run("devices", "--config", config).stdout


def test_validate_says_good_or_names_the_faults(config: str, tmp_path: Path):
    assert "good" in run("validate", "--config", config).stdout
    assert answer("validate", "--config", config)["backends"] == ["sim"]
    bad = tmp_path / "bad.yaml"
    bad.write_text(EXAMPLE.replace("fleet: h100x8", "fleet: h100x9"))
    result = run("validate", "--config", str(bad))
    assert result.exit_code == 2
    assert "did you mean 'h100x8'" in result.stderr


def test_explain_on_a_configuration_tells_the_choice_and_its_reasons(config: str):
    told = answer("explain", "nvidia.com/gpu", "-n", "2", "--config", config)
    assert len(told["slots"]) == 2
    assert len(told["devices"]) == 7
    assert sum(row["picked"] for row in told["devices"]) == 2
    assert "by aligned, from 7 free" in run("explain", "nvidia.com/gpu", "-n", "2", "--config", config).stdout


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("explain", "nvidia.com/gpus"), 2, "did you mean 'nvidia.com/gpu'"),
        (("explain", "nvidia.com/gpu", "-n", "99"), 1, "99"),
        (("explain", "nvidia.com/gpu", "-n", "0"), 1, "0"),
    ],
)
def test_explain_of_the_impossible_is_explained_too(config: str, args, code, words):
    result = run(*args, "--config", config)
    assert result.exit_code == code
    assert words in result.stderr


def test_config_show_prints_what_is_in_force_and_an_example(config: str):
    shown = answer("config", "show", "--config", config, "--plugin-dir", "/x")
    assert shown["kubelet"]["directory"] == "/x"
    assert shown["scan"]["interval"] == "60s"
    assert run("config", "show", "--example").stdout == EXAMPLE
    assert "directory: /x" in run("config", "show", "--config", config, "--plugin-dir", "/x").stdout


def test_config_schema_is_json_and_explain_explains():
    assert json.loads(run("config", "schema").stdout)["title"] == "Fairlead configuration"
    assert "aligned" in run("config", "explain", "rules.placement").stdout
    keys = [row["key"] for row in answer("config", "explain", "scan")]
    assert keys == ["scan", "scan.interval", "scan.deadline", "scan.required", "scan.remember"]
    assert run("config", "explain", "nope").exit_code == 2


def test_version_and_completion():
    assert set(answer("version")) == {"fairlead", "python", "api"}
    assert "v1beta1" in run("version").stdout
    for shell in ("bash", "zsh", "fish"):
        assert "_FAIRLEAD_COMPLETE" in run("completion", shell).stdout


@pytest.mark.parametrize("command", ["status", "journal"])
def test_without_a_daemon_the_exit_code_is_five(command: str, tmp_path: Path):
    result = run(command, "--socket", str(tmp_path / "none.sock"))
    assert result.exit_code == 5
    assert "no daemon answers" in result.stderr
    result = run(command, env={"FAIRLEAD_STATUS_SOCKET": str(tmp_path / "other.sock")})
    assert "other.sock" in result.stderr


def test_a_mistyped_command_is_guessed():
    result = run("statsu")
    assert result.exit_code == 2
    assert "did you mean 'status'" in result.stderr


def test_orders_are_key_value(tmp_path: Path):
    result = run("sim", "fail", "3", "xid", "--socket", str(tmp_path / "s"))
    assert result.exit_code == 2
    assert "key=value" in result.stderr


def test_run_is_parsed_without_click_unless_something_is_odd():
    assert parse(["--config", "a", "--plugin-dir=/x"]) == {"--config": "a", "--plugin-dir": "/x"}
    assert parse([]) == {}
    assert parse(["--help"]) is None
    assert parse(["--config"]) is None
    assert parse(["--confg", "x"]) is None


@pytest.mark.parametrize(
    ("args", "env", "listen"),
    [
        (["--web"], "", WEB),
        (["--web"], ":2", WEB),
        (["--web", "--http", ":1"], "", ":1"),
        (["--web", "--http=:1"], ":2", ":1"),
        (["--http", ":1", "--web"], "", ":1"),
        ([], ":2", ":2"),
    ],
)
def test_web_is_the_same_address_with_click_and_without(
    args: list[str], env: str, listen: str, config: str, monkeypatch: pytest.MonkeyPatch
):
    heard: list[str] = []

    def run_daemon(flags: Mapping[str, str | None]) -> int:
        heard.append(load(config, overrides(flags)).config.http.listen)
        return 0

    monkeypatch.setattr("fairlead.cli.run.run", run_daemon)
    monkeypatch.setenv("FAIRLEAD_HTTP", env)
    plain = parse(["--config", config, *args])
    assert plain is not None
    run_daemon(plain)
    assert run("run", "--config", config, *args).exit_code == 0
    assert heard == [listen, listen]


def test_the_page_is_on_an_address_that_only_this_machine_reaches():
    assert is_loopback(WEB)


def test_the_demo_says_where_its_page_is(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    served: list[str] = []

    class Short:
        """A story of one step."""

        def __init__(self, stage: Stage) -> None:
            served.append(load(str(stage.config)).config.http.listen)

        async def tell(self) -> AsyncIterator[Event]:
            yield Event("kubelet", "started", 0.0)

        async def epilogue(self) -> Event:
            return Event("stop", "over", 0.0)

    monkeypatch.setattr("fairlead.cli.demo.show.Story", Short)
    assert play("h100x8", once=True) == 0
    said = capsys.readouterr().out
    assert "In a browser: http://127.0.0.1:" in said
    assert f"In a browser: http://{served[0]}\n" in said


def test_a_defect_is_one_line_unless_debugging(monkeypatch: pytest.MonkeyPatch, capsys):
    def broken(_args: list[str]) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("fairlead.cli._dispatch", broken)
    with pytest.raises(SystemExit) as caught:
        main(["x"])
    assert caught.value.code == 70
    assert "ZeroDivisionError: oops" in capsys.readouterr().err
    monkeypatch.setenv("FAIRLEAD_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        main(["x"])


def test_a_table_aligns_and_drops_empty_columns():
    text = table(["A", "EMPTY", "N"], [["x", "", 1], [Cell("long", "good"), "", 22]], right=(2,))
    assert text == "A      N\nx      1\nlong  22"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0123, "12 ms"), (5, "5 s"), (119, "119 s"), (240, "4 m"), (7300, "2 h"), (200000, "2 d")]
)
def test_durations(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("number", "text"), [(0, ""), (512, "512 B"), (80 * 2**30, "80 GiB"), (3 * 2**19, "1.5 MiB"), (2**10, "1 KiB")]
)
def test_sizes(number, text):
    assert memory(number) == text


def test_words_are_painted_only_when_wanted():
    assert paint("x", "good", on=True) == "\x1b[32mx\x1b[0m"
    assert paint("x", "good", on=False) == "x"
    assert short("abcdef", 4) == "abc…"

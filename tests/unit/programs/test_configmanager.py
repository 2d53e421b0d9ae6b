"""The config-manager: which file a label chooses, how it is put in place, and who is told."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.clock import FakeClock

from fairlead.cluster.nodes import Node, NodeMeta, NodeSnapshot
from fairlead.config.choice import NoChoice, choose, list_files
from fairlead.dialects.goflags import BadFlag
from fairlead.kit.latest import Latest
from fairlead.programs.configmanager import ConfigLink, Settings, is_named, read_settings, run

LABEL = "nvidia.com/device-plugin.config"


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    source = tmp_path / "available"
    source.mkdir()
    for name in ("a", "b"):
        (source / name).write_text(f"# {name}\n")
    (source / "..data").mkdir()
    return source


def settings(shelf: Path, *more: str) -> Settings:
    places = ["--node-name=n", f"--config-file-srcdir={shelf}", f"--config-file-dst={shelf.parent}/config.yaml"]
    made = read_settings([*places, *more], {})
    assert isinstance(made, Settings)
    return made


@pytest.mark.parametrize(
    ("label", "files", "default", "fallbacks", "chosen"),
    [
        ("b", ["a", "b"], "a", [], "b"),
        ("", ["a", "b"], "a", ["single"], "a"),
        ("", ["a", "default"], "", ["named", "single"], "default"),
        ("", ["a"], "", ["named", "single"], "a"),
        ("", ["a", "b"], "", ["named", "empty"], None),
        ("", [], "", ["empty"], None),
    ],
)
def test_the_choice(label: str, files: list[str], default: str, fallbacks: list[str], chosen: str | None):
    assert choose(label, files, default, fallbacks) == chosen


@pytest.mark.parametrize(
    ("label", "files", "default", "words"),
    [
        ("c", ["a"], "a", "specified config c does not exist. There are: a"),
        ("", ["a"], "c", "the default config c does not exist"),
        ("", [], "", "no configuration files available"),
        ("", ["a", "b"], "", "Label the node"),
    ],
)
def test_no_choice(label: str, files: Sequence[str], default: str, words: str):
    with pytest.raises(NoChoice) as error:
        choose(label, files, default, ["named"])
    assert words in str(error.value)


def test_bookkeeping_of_a_config_map_is_no_config(shelf: Path):
    assert list_files(str(shelf), "--config-file-srcdir") == ["a", "b"]


def test_the_link_is_replaced_in_one_step_and_only_when_it_changes(shelf: Path):
    told: list[str] = []
    link = ConfigLink(settings(shelf, "--send-signal=false"), told.append)
    target = shelf.parent / "config.yaml"
    link.follow("a")
    link.follow("a")
    assert target.readlink() == shelf / "a"
    link.follow("b")
    assert target.read_text() == "# b\n"
    assert told == ["config: a", "config: b"]


def test_a_label_that_names_no_file_keeps_what_is_in_force(shelf: Path):
    told: list[str] = []
    link = ConfigLink(settings(shelf, "--send-signal=false"), told.append)
    link.follow("a")
    link.follow("gone")
    link.follow("gone")
    assert (shelf.parent / "config.yaml").readlink() == shelf / "a"
    assert told[1:] == ["specified config gone does not exist. There are: a, b; the config in force stays"]


def test_at_first_a_label_that_names_no_file_leads_to_the_default(shelf: Path):
    told: list[str] = []
    ConfigLink(settings(shelf, "--send-signal=false", "--default-config=b"), told.append).follow("gone")
    assert (shelf.parent / "config.yaml").readlink() == shelf / "b"
    assert "b is used instead" in told[0]


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    script = "import signal, time; signal.signal(signal.SIGHUP, lambda *_: exit(7)); print(flush=True); time.sleep(60)"
    process = subprocess.Popen(
        ["a-plugin-of-this-test", "-c", script], executable=sys.executable, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_the_reader_is_told(shelf: Path, sleeper: subprocess.Popen[bytes]):
    link = ConfigLink(settings(shelf, "--process-to-signal=a-plugin-of-this-test"), lambda _: None)
    link.follow("a")
    assert sleeper.wait(20) == 7


def test_an_edited_config_map_is_told_as_well(shelf: Path, sleeper: subprocess.Popen[bytes]):
    link = ConfigLink(settings(shelf, "--process-to-signal=a-plugin-of-this-test"), lambda _: None)
    (shelf.parent / "config.yaml").symlink_to(shelf / "a")
    link.look()
    assert sleeper.poll() is None
    (shelf / "a").write_text("# edited\n")
    link.look()
    assert sleeper.wait(20) == 7


@pytest.mark.parametrize(
    ("argv", "name", "meant"),
    [
        (["nvidia-device-plugin"], "nvidia-device-plugin", True),
        (["/usr/bin/nvidia-device-plugin", "--x"], "nvidia-device-plugin", True),
        (["mps-control-daemon"], "/usr/bin/mps-control-daemon", True),
        (["/usr/bin/python3", "/usr/bin/fairlead", "nvidia"], "nvidia-device-plugin", True),
        (["/usr/bin/python3", "-I", "/usr/bin/fairlead", "nvidia", "--x"], "nvidia-device-plugin", True),
        (["/usr/bin/python3", "/usr/bin/fairlead", "nvidia", "labels"], "nvidia-device-plugin", False),
        (["/usr/bin/python3", "/usr/bin/fairlead", "nvidia", "labels"], "gpu-feature-discovery", True),
        (["python3", "-m", "fairlead", "nvidia", "labels"], "nvidia-device-plugin", False),
        (["python3", "-m", "fairlead", "nvidia", "labels"], "gpu-feature-discovery", True),
        (["/usr/bin/python3", "/usr/bin/fairlead", "run"], "nvidia-device-plugin", False),
        (["vim", "nvidia-device-plugin"], "nvidia-device-plugin", False),
        (["/usr/local/bin/python3", "-IS", "/usr/bin/nvidia-device-plugin"], "nvidia-device-plugin", True),
        (["/usr/local/bin/python3", "-IS", "/usr/bin/mps-control-daemon"], "/usr/bin/mps-control-daemon", True),
        (["/usr/local/bin/python3.13", "/usr/bin/config-manager"], "nvidia-device-plugin", False),
        (["/usr/local/bin/python3", "-IS"], "nvidia-device-plugin", False),
        ([], "nvidia-device-plugin", False),
    ],
)
def test_who_is_meant(argv: list[str], name: str, meant: bool):
    assert is_named(argv, name) is meant


async def test_nothing_is_chosen_before_the_node_is_known(shelf: Path):
    node: Latest[NodeSnapshot] = Latest(NodeSnapshot(problem="the API server is away"))
    told: list[str] = []
    work = asyncio.ensure_future(
        run(settings(shelf, "--oneshot", "--default-config=a", "--send-signal=false"), node, FakeClock(), told.append)
    )
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not (shelf.parent / "config.yaml").exists()
    node.set(NodeSnapshot(Node(NodeMeta(name="n", labels={LABEL: "b"})), complete=True))
    await asyncio.wait_for(work, 10)
    assert (shelf.parent / "config.yaml").readlink() == shelf / "b"
    assert told == ["the API server is away", "config: b"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], "invalid <node-name>: must not be empty string"),
        (["--node-name=n"], "invalid <config-file-srcdir>"),
        (["--node-name=n", "--config-file-srcdir=/a", "--config-file-dst=/b", "--signal=999"], "no signal 999"),
        (
            ["--node-name=n", "--config-file-srcdir=/a", "--config-file-dst=/b", "--fallback-strategies=any"],
            "unknown fallback strategy: any",
        ),
    ],
)
def test_what_is_missing_is_named(args: list[str], words: str):
    with pytest.raises(BadFlag) as error:
        read_settings(args, {})
    assert words in str(error.value)


def test_a_process_that_is_gone_is_no_trouble(shelf: Path):
    told: list[str] = []
    link = ConfigLink(settings(shelf, "--process-to-signal=nobody-of-this-name"), told.append)
    link.follow("a")
    assert "no signal is sent" in told[-1]

"""`fairlead doslab`, `gpushare` and `volcano` as processes: how they end, and what they keep to themselves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from fairlead._version import __version__
from fairlead.cli import DIALECTS
from fairlead.config.spec import StatusSpec
from fairlead.dialects.invocation import common_flags

PATIENCE_S = 60
SHARING = ("doslab", "gpushare", "volcano")
SECRET = "sesame-open"


def play(script: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", script]
    env = {key: value for key, value in os.environ.items() if key not in {"NODE_NAME", "KUBECONFIG"}} | environ
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S, env=env)


def fairlead(*args: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return play(f"from fairlead.cli import main; main({list(args)!r})", **environ)


def test_all_are_listed():
    done = fairlead("--help")
    assert all(f"\n  {word} " in done.stdout for word in DIALECTS)


@pytest.mark.parametrize("word", DIALECTS)
def test_its_socket_is_where_status_looks(word: str):
    socket = next(str(flag.default) for flag in common_flags(word, "it") if flag.name == "status-socket")
    assert Path(socket).parent == Path(StatusSpec().socket).parent
    assert socket.endswith(".sock")


@pytest.mark.parametrize("word", SHARING)
def test_help_and_version(word: str):
    done = fairlead(word, "--help")
    assert done.returncode == 0
    assert done.stdout.startswith(f"Usage: fairlead {word} [flags]")
    assert "--unit-too-small [FAIRLEAD_UNIT_TOO_SMALL]" in done.stdout
    assert fairlead(word, "--version").stdout == f"fairlead {__version__}\n"


@pytest.mark.parametrize("word", SHARING)
def test_what_is_printed_is_a_configuration(word: str, tmp_path: Path):
    done = fairlead(word, "--print-config")
    assert (done.returncode, done.stderr) == (0, "")
    assert yaml.safe_load(done.stdout)["instance"] == word
    (tmp_path / "c.yaml").write_text(done.stdout)
    assert fairlead("validate", "--config", f"{tmp_path}/c.yaml").returncode == 0


@pytest.mark.parametrize(("word", "code"), [("doslab", 2), ("gpushare", 2), ("volcano", 1)])
def test_a_flag_that_is_not_theirs(word: str, code: int):
    done = fairlead(word, "-nosuch")
    assert done.returncode == code  # as theirs end
    assert done.stderr == f"fairlead {word}: flag provided but not defined: -nosuch. --help lists all\n"


@pytest.mark.parametrize("word", ["gpushare", "volcano"])
def test_without_the_name_of_the_node(word: str):
    done = fairlead(word)
    assert done.returncode == 1
    assert done.stderr.startswith(f"fairlead {word}: NODE_NAME is not set")


@pytest.mark.parametrize(
    ("word", "args"),
    [
        ("doslab", ("-masterUrl=http://127.0.0.1:9", "-token", SECRET)),
        ("gpushare", (f"--token={SECRET}",)),
    ],
)
def test_a_token_is_told_to_nobody(word: str, args: tuple[str, ...], tmp_path: Path):
    """The daemon writes its command line into its lock, for whoever starts a second one."""
    script = f"""
import sys
from fairlead.app.daemon import Daemon
async def run(self):
    print(self.description, self.loaded.config)
Daemon.run = run
sys.argv[1:] = {[word, *args, f"--plugin-dir={tmp_path}"]!r}
from fairlead.cli import main
main()
"""
    done = play(script, NODE_NAME="n1", KUBECONFIG=f"{tmp_path}/none")
    assert (done.returncode, f"{word} -" in done.stdout, "***" in done.stdout) == (0, True, True), done.stderr
    assert SECRET not in done.stdout + done.stderr


@pytest.mark.parametrize(
    "command", [["run", "--config"], *([word] for word in DIALECTS)], ids=lambda command: command[0]
)
def test_a_start_translates_and_compiles_once(command: list[str], tmp_path: Path):
    (tmp_path / "c.yaml").write_text("backends: [{kind: sim}]\nrules: [{resource: example.com/gpu}]\n")
    more = {"run": [str(tmp_path / "c.yaml")], "generic": ["--device", "{name: fuse}"]}
    words = [*command, *more.get(command[0], [])]
    script = f"""
from fairlead.app.daemon import Daemon
from fairlead.config import amounts, compile, load
from fairlead.dialects.invocation import Invocation
from importlib import import_module
calls = []
def count(owner, name):
    plain = getattr(owner, name)
    def counted(*args, **keys):
        calls.append(name)
        return plain(*args, **keys)
    setattr(owner, name, counted)
async def run(self):
    print(*sorted(calls))
Daemon.run = run
for word in {command[:1] if command[0] != "run" else []!r}:
    import_module(f"fairlead.dialects.{{word}}.command")
for owner in Invocation.__subclasses__():
    count(owner, "translate")
count(compile, "compile_rules")
count(amounts, "compile_amounts")
from fairlead.cli import main
main({words!r})
"""
    done = play(script, NODE_NAME="n1", KUBECONFIG=f"{tmp_path}/none")
    amounts = ["compile_amounts"] if command[0] in SHARING else []
    translated = [] if command[0] == "run" else ["translate"]
    assert (done.returncode, done.stdout.split()) == (0, [*amounts, "compile_rules", *translated]), done.stderr


def test_programs_beside_gpushare_collect_their_garbage():
    script = """
import gc
from importlib import import_module
from fairlead.cli import main
from fairlead.cli.dialect import SUBCOMMANDS
import_module(SUBCOMMANDS["gpushare"]["inspect"]).main = lambda args: 7 if gc.isenabled() else 8
main(["gpushare", "inspect"])
"""
    assert play(script).returncode == 7


@pytest.mark.parametrize("word", SHARING)
def test_without_a_way_to_the_cluster(word: str, tmp_path: Path):
    places = (f"--plugin-dir={tmp_path}/p", f"--status-socket={tmp_path}/s.sock")
    done = fairlead(word, *places, NODE_NAME="n1", HOME=str(tmp_path), KUBERNETES_SERVICE_HOST="")
    assert done.returncode == 1
    assert done.stderr.startswith(f"fairlead {word}: nothing says where the API server is: this is no pod")
    assert not (tmp_path / "p").exists()


def test_a_word_that_is_no_command_names_those_that_there_are():
    done = fairlead("amd", "labells")
    assert done.returncode == 2
    assert "fairlead amd: beside it there is: fairlead amd labels" in done.stderr

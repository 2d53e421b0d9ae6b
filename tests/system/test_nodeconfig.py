"""A label of the node chooses the configuration, and the daemon follows it by itself, against a fake API server."""

from __future__ import annotations

import json
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.apiserver.server import ApiServer, api_server
from tests.system.process import Program, fairlead, program

LABEL = "example.com/config"


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with api_server() as server:
        label(server, "")
        yield server


@pytest.fixture
def env(server: ApiServer, tmp_path: Path) -> dict[str, str]:
    return {"KUBECONFIG": server.write_kubeconfig(tmp_path / "kubeconfig"), "NODE_NAME": "n1", "NO_COLOR": "1"}


@pytest.fixture
def place() -> Iterator[Path]:
    """Short: a socket's path may have 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="fl") as place:
        for name in ("plugins", "configs"):
            (Path(place) / name).mkdir()
        for name, devices in (("large", 4), ("small", 1)):
            write(Path(place), name, devices)
        yield Path(place)


def write(place: Path, name: str, devices: int) -> None:
    config = {
        "backends": [{"kind": "sim", "fleet": {"name": "f", "devices": [{"count": devices, "id": "gpu-{i}"}]}}],
        "rules": [{"resource": "example.com/gpu"}],
        "kubelet": {"directory": str(place / "plugins"), "podResources": ""},
        "status": {"socket": str(place / "fairlead.sock")},
    }
    beside = place / "new"
    beside.write_text(json.dumps(config))
    beside.replace(place / "configs" / name)


def label(server: ApiServer, value: str) -> None:
    server.store.put("nodes", {"metadata": {"name": "n1", "labels": {LABEL: value} if value else {}}, "status": {}})


def words(place: Path, *more: str) -> tuple[str, ...]:
    flags = (f"--config={place / 'configs'}", f"--config-label={LABEL}", f"--plugin-dir={place / 'plugins'}")
    return ("-m", "fairlead", "run", *flags, *more)


async def ends(daemon: Program) -> None:
    daemon.send(signal.SIGTERM)
    assert await daemon.ends() == 0


async def devices(place: Path) -> int:
    _, out, _ = await fairlead("status", "--json", "--status-socket", str(place / "fairlead.sock"))
    return len(json.loads(out)["devices"])


async def problems(place: Path) -> str:
    _, out, _ = await fairlead("status", "--status-socket", str(place / "fairlead.sock"))
    return out


async def test_the_label_chooses_and_another_label_takes_effect_without_a_restart(
    server: ApiServer, env: dict[str, str], place: Path
):
    label(server, "large")
    async with program(*words(place), env=env) as daemon:
        assert f"config={place}/configs/large" in await daemon.says("started")
        await daemon.says("waiting for the kubelet")  # there is no kubelet
        assert await devices(place) == 4
        await server.watched()
        label(server, "small")
        assert "configs/small" in await daemon.says("config-applied")
        await ends(daemon)
    assert (place / "plugins/.fairlead.config").read_text() == "small"


async def test_an_edited_file_takes_effect(server: ApiServer, env: dict[str, str], place: Path):
    label(server, "small")
    async with program(*words(place), env=env) as daemon:
        await daemon.says("waiting for the kubelet")
        write(place, "small", 3)
        await daemon.says("config-applied")
        await ends(daemon)


async def test_a_node_without_the_label_gets_the_default(server: ApiServer, env: dict[str, str], place: Path):
    async with program(*words(place, "--config-default", "small"), env=env) as daemon:
        assert "configs/small" in await daemon.says("started")
        await ends(daemon)


async def test_without_label_and_default_it_says_what_is_missing(env: dict[str, str], place: Path):
    async with program(*words(place), env=env) as daemon:
        assert "no config is set: the node has no label, there is no default" in await daemon.says("no config is set")
        assert await daemon.ends() == 1


async def test_a_label_that_names_no_file_changes_nothing_and_is_reported(
    server: ApiServer, env: dict[str, str], place: Path
):
    label(server, "large")
    async with program(*words(place), env=env) as daemon:
        await daemon.says("waiting for the kubelet")
        await server.watched()
        label(server, "../../etc/passwd")
        line = await daemon.says("does not exist")
        assert "There are: large, small; large stays in force" in line
        assert "large stays in force" in await problems(place)
        # The file comes later than its label: ConfigMaps do.
        label(server, "later")
        await daemon.says("specified config later does not exist")
        write(place, "later", 2)
        assert "configs/later" in await daemon.says("config-applied")
        assert "stays in force" not in await problems(place)
        await ends(daemon)


async def test_a_label_that_names_no_file_at_the_start_means_the_default(
    server: ApiServer, env: dict[str, str], place: Path
):
    label(server, "nosuch")
    async with program(*words(place, "--config-default", "small"), env=env) as daemon:
        assert "small is used instead" in await daemon.says("nosuch does not exist")
        assert "configs/small" in await daemon.says("started")
        await ends(daemon)


async def test_a_start_while_the_api_server_is_away_uses_the_last_choice(env: dict[str, str], place: Path):
    (place / "plugins/.fairlead.config").write_text("small")
    gone = {**env, "KUBECONFIG": str(unreachable(place))}
    async with program(*words(place), env=gone) as daemon:
        await daemon.says("small, the configuration of the last run, is used")
        assert "configs/small" in await daemon.says("started")
        await ends(daemon)


async def test_a_first_start_waits_for_the_api_server_and_can_be_stopped(
    server: ApiServer, env: dict[str, str], place: Path
):
    (place / "plugins/.fairlead.config").write_text("gone-since")
    gone = {**env, "KUBECONFIG": str(unreachable(place))}
    async with program(*words(place), env=gone) as daemon:
        await daemon.says(f"waiting for the label {LABEL} of this node")
        await ends(daemon)
    assert not any("started" in line for line in daemon.lines)


async def test_a_missing_right_is_named(server: ApiServer, env: dict[str, str], place: Path):
    server.allowed = set()
    async with program(*words(place), env=env) as daemon:
        assert 'resources: ["nodes"]' in await daemon.says('resources: ["nodes"]')
        await ends(daemon)


@pytest.mark.parametrize(
    ("flags", "without", "said"),
    [
        (["--config", "/etc/hostname"], "", "--config: /etc/hostname is no directory"),
        ([], "NODE_NAME", "the name of this node is not known. Set NODE_NAME"),
    ],
)
async def test_what_cannot_work_is_one_line(
    env: dict[str, str], place: Path, flags: list[str], without: str, said: str
):
    given = {**env, without: ""} if without else env
    code, out, err = await fairlead(*words(place, *flags)[2:], env=given)
    assert (code, out) == (2, "")
    assert said in err
    assert "Traceback" not in err


async def test_a_directory_without_a_label_is_refused_with_the_flag_that_takes_one(place: Path):
    code, _, err = await fairlead("run", "--config", str(place / "configs"))
    assert code == 2
    assert "is a directory. Name a file in it, or the node's label that does: --config-label" in err


# --- NVIDIA's config files --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("chosen", "replicas"), [("shared", 4), ("", 0)])
async def test_a_config_file_of_nvidia_is_chosen_the_same_way(
    server: ApiServer, env: dict[str, str], place: Path, chosen: str, replicas: int
):
    for name, text in (("shared", SHARED), ("default", "version: v1\n")):
        (place / "configs" / name).write_text(text)
    label(server, chosen)
    flags = (f"--config-file={place / 'configs'}", f"--config-label={LABEL}", f"--plugin-dir={place / 'plugins'}")
    code, out, err = await fairlead("nvidia", *flags, "--print-config", env=env)
    assert code == 0, err
    assert (f"replicas: {replicas}" in out) == bool(replicas)


async def test_unknown_fallbacks_are_refused(env: dict[str, str], place: Path):
    flags = (f"--config-file={place / 'configs'}", f"--config-label={LABEL}", "--config-fallbacks=first")
    code, _, err = await fairlead("nvidia", *flags, env=env)
    assert code
    assert "--config-fallbacks: unknown word 'first'. Use some of named, single, empty" in err


SHARED = """\
version: v1
sharing:
  timeSlicing:
    resources:
    - {name: nvidia.com/gpu, replicas: 4}
"""


def unreachable(place: Path) -> Path:
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}
    context = {"name": "x", "context": {"cluster": "c", "user": ""}}
    file = place / "kubeconfig"
    file.write_text(json.dumps({"clusters": [cluster], "contexts": [context], "current-context": "x"}))
    return file

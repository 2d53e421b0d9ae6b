"""Stands in for systemctl, systemd-run, sudo and journalctl, under these names, first in the suite's PATH.

A unit is a directory: its command line, its log and the pid of its process. Standard library only: it runs by itself.

`systemctl restart` is strict. Systemd's returns when the kubelet has been executed, and a spec that then looks at the
node sees what the old kubelet has left there: with it, a plugin that never registers again passes. Here it returns
when the new kubelet has posted its status and has its pods again, so that what the spec sees is the new one's word.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import ssl
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

UNITS = Path(os.environ.get("FAIRLEAD_E2E_UNITS", "/run/units"))
KUBECONFIG = Path("kubeconfig")  # the suite writes it where it runs
PATIENCE_S = 90.0
STOP_S = 30.0
LOOK_S = 0.1
VERSION = "systemd 252 (a stand-in)"


class ShimError(Exception):
    """The caller gets this as one line."""


def main(name: str, words: list[str]) -> int:
    match name, words:
        case "sudo", [_, *_]:
            os.execvp(words[0], words)
        case "systemd-run", ["--version"]:
            print(VERSION)
        case "systemd-run", _:
            run_unit(words)
        case "systemctl", [verb, *names]:
            control(verb, names)
        case "journalctl", _:
            pass  # there is no journal; the suite asks for it when it collects logs
        case _:
            raise ShimError(f"does not know {words}")
    return 0


def run_unit(words: list[str]) -> None:
    """systemd-run: makes a unit and starts it."""
    name, log = "", ""
    while words and words[0].startswith("-"):
        word = words.pop(0)
        given = words.pop(0) if word == "-p" else word
        if given.startswith("StandardError="):
            log = given.partition(":")[2]
        elif given.startswith("--unit="):
            name = given.removeprefix("--unit=").removesuffix(".service")
    if not name or not words:
        raise ShimError("a unit needs a name and a command")
    unit = UNITS / name
    unit.mkdir(parents=True)
    # Systemd would expand these; the suite has written them twice to be spared.
    command = [word.replace("%%", "%").replace("$$", "$") for word in words]
    (unit / "unit.json").write_text(json.dumps({"command": command, "log": log, "cwd": str(Path.cwd())}))
    start(unit)


def control(verb: str, words: list[str]) -> None:
    names = [word for word in words if not word.startswith("-")]
    if verb == "list-units":
        for unit in units(names):
            running = pid_of(unit) is not None
            if running or "--state=running" not in words:
                print(f"{unit.name}.service loaded active {'running' if running else 'exited'} {unit.name}")
        return
    for unit in units(names):
        match verb:
            case "start":
                start(unit)
            case "kill":
                if pid := pid_of(unit):
                    os.kill(pid, signal.SIGTERM)
            case "stop":
                stop(unit)
            case "restart":
                restart(unit)
            case "reset-failed":
                pass
            case _:
                raise ShimError(f"does not know {verb}")


def units(names: list[str]) -> list[Path]:
    patterns = [name.removesuffix(".service") for name in names] or ["*"]
    return sorted({unit for pattern in patterns for unit in UNITS.glob(pattern)})


def start(unit: Path) -> None:
    told = json.loads((unit / "unit.json").read_text())
    os.chdir(told["cwd"])
    log = os.open(told["log"] or os.devnull, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    ends = [(os.POSIX_SPAWN_DUP2, log, 1), (os.POSIX_SPAWN_DUP2, log, 2)]
    pid = os.posix_spawn(told["command"][0], told["command"], os.environ, file_actions=ends, setsid=True)
    (unit / "pid").write_text(f"{pid} {_born(pid)}")


def stop(unit: Path) -> None:
    pid = pid_of(unit)
    if pid is None:
        return
    os.kill(pid, signal.SIGTERM)
    try:
        until(lambda: pid_of(unit) is None, f"{unit.name} ends", STOP_S)
    except ShimError:
        os.kill(pid, signal.SIGKILL)
        until(lambda: pid_of(unit) is None, f"{unit.name} is killed", STOP_S)


def restart(unit: Path) -> None:
    stop(unit)
    before = node()["metadata"]["resourceVersion"]  # nobody else writes to the node: what comes now is the new kubelet
    started_s = int(time.time())  # the API server knows no fractions
    start(unit)
    until(lambda: has_posted(before, started_s), "the new kubelet posts its status", PATIENCE_S)
    until(has_its_pods, "the new kubelet has its pods", PATIENCE_S)


def has_posted(before: str, started_s: int) -> bool:
    try:
        now = node()
    except OSError:
        return False
    ready = next((one for one in now["status"].get("conditions", ()) if one["type"] == "Ready"), None)
    if ready is None or ready["status"] != "True" or now["metadata"]["resourceVersion"] == before:
        return False
    return datetime.fromisoformat(ready["lastHeartbeatTime"]).timestamp() >= started_s


def has_its_pods() -> bool:
    """The kubelet lists every pod that the API server has for the node."""
    try:
        mine = uids(_get(http.client.HTTPConnection("127.0.0.1", 10255, timeout=10), "/pods"))
        all_of_them = uids(_ask("/api/v1/pods"))
    except OSError:
        return False
    return all_of_them <= mine


def uids(pods: dict[str, Any]) -> set[str]:
    return {pod["metadata"]["uid"] for pod in pods["items"] or () if pod["spec"].get("nodeName")}


def node() -> dict[str, Any]:
    (only,) = _ask("/api/v1/nodes")["items"]
    return dict(only)


def _ask(path: str) -> dict[str, Any]:
    """The API server of the suite, as the kubelet reaches it."""
    told = dict(line.strip().split(": ", 1) for line in KUBECONFIG.read_text().splitlines() if ": " in line)
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    host, port = told["server"].removeprefix("https://").rsplit(":", 1)
    connection = http.client.HTTPSConnection(host, int(port), timeout=10, context=tls)
    return _get(connection, path, {"Authorization": f"Bearer {told['token']}"})


def _get(connection: http.client.HTTPConnection, path: str, headers: dict[str, str] | None = None) -> dict[str, Any]:
    try:
        connection.request("GET", path, headers=headers or {})
        answer = connection.getresponse()
        text = answer.read()
    finally:
        connection.close()
    if answer.status != http.client.OK:
        raise ConnectionError(f"{path}: {answer.status} {text[:200]!r}")
    return dict(json.loads(text))


def pid_of(unit: Path) -> int | None:
    try:
        pid, born = map(int, (unit / "pid").read_text().split())
    except (OSError, ValueError):
        return None
    return pid if _born(pid) == born else None


def _born(pid: int) -> int:
    """When a living process was started, in clock ticks; 0 for one that is not there."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in "ZX" else int(fields[19])


def until(condition: Any, what: str, patience_s: float) -> None:
    end = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > end:
            raise ShimError(f"{what}: not within {patience_s:.0f} s")
        time.sleep(LOOK_S)


if __name__ == "__main__":
    called = Path(sys.argv[0]).name
    try:
        sys.exit(main(called, sys.argv[1:]))
    except (ShimError, OSError, ValueError, KeyError) as error:
        sys.exit(f"{called}: {type(error).__name__}: {error}")

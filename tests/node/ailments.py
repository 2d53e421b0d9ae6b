"""The doctor beside a true kubelet: runs it, carries out its cures, and deploys what it finds fault with."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from fairlead.programs.doctor.findings import Finding, Report
from tests.node import verdict
from tests.node.rig import house
from tests.node.rig.api import Api, RefusedError
from tests.node.rig.images import SPACE
from tests.node.rig.places import BIN, CONTAINERD, IMAGE, INSIDE, KUBECONFIG, KUBELET, LOGS, NODE
from tests.node.rig.steps import until

CURE_S = 30.0
MERGE = "application/merge-patch+json"
HOLDS = "import sys; file = open(sys.argv[1]); print('open', flush=True); sys.stdin.read()"
SETS = "/apis/apps/v1/namespaces/{}/daemonsets"
NULL = os.makedev(1, 3)


class Doctor:
    """`fairlead doctor` with a kubeconfig and the node's name, in the node's mount namespace."""

    def __init__(self, socket: Path, *words: str, kubeconfig: Path = KUBECONFIG, env: dict[str, str] | None = None):
        where = ("--socket", str(socket), "--kubeconfig", str(kubeconfig), "--node", NODE)
        self._command = ("-m", "fairlead", "doctor", *where, *words)
        self._env = env or {}

    def look(self, *words: str) -> Report:
        done = _inside([sys.executable, *self._command, *words, "--json"], self._env)
        assert done.returncode in {0, 1}, done.stderr
        report = msgspec.json.decode(done.stdout, type=Report)
        assert done.returncode == min(report.counted, 1), done.stdout
        return report

    def codes(self, *words: str) -> set[str]:
        return {one.code for one in self.look(*words).findings}

    def finding(self, code: str, *words: str) -> Finding:
        """The first with this code. Some faults are seen only when the cluster has noticed them."""

        def found() -> list[Finding]:
            return [one for one in self.look(*words).findings if one.code == code]

        return until(found, f"the doctor finds {code}", CURE_S)[0]

    @contextmanager
    def ends_well(self, *codes: str, words: Sequence[str] = ()) -> Iterator[None]:
        """Before the body these codes are not found, and after it they are not found any more."""
        assert not self.codes(*words) & set(codes)
        yield
        until(lambda: not self.codes(*words) & set(codes), f"{', '.join(codes)} is gone", CURE_S)


def carry_out(cure: str, ends: int = 0) -> str:
    """The printed command itself, on the node. What it prints."""
    done = _inside(["/bin/sh", "-c", cure], {"KUBECONFIG": str(KUBECONFIG)})
    assert done.returncode == ends, f"{cure}\n{done.stdout}{done.stderr}"
    return done.stdout


def _inside(words: Sequence[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("FAIRLEAD_", "KUBE"))}
    path = f"{BIN}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    command = house.inside(*words)
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**clean, "PATH": path, **env})


@contextmanager
def device_nodes(count: int, group: int) -> Iterator[list[Path]]:
    """In /dev, where a doctor looks for them: /dev/null by other names, for root and this group."""
    name = f"fairlead-doctor-{secrets.token_hex(3)}"
    made = [Path(f"/dev/{name}-{number}") for number in range(count)]
    try:
        for path in made:
            os.mknod(path, stat.S_IFCHR, NULL)
            path.chmod(0o660)
            os.chown(path, 0, group)
        yield made
    finally:
        for path in made:
            path.unlink(missing_ok=True)


@contextmanager
def opened(path: Path) -> Iterator[int]:
    """A process of the host has it open. Its pid."""
    command = [sys.executable, "-I", "-S", "-c", HOLDS, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        yield process.pid
        process.communicate(b"")


@contextmanager
def apart(*, linked: bool) -> Iterator[str]:
    """A directory that is not the kubelet's own, without the kubelet's socket or with a link to it."""
    place, log = KUBELET / "apart", LOGS / "kubelet.log"
    start = log.stat().st_size
    place.mkdir()
    try:
        if linked:
            (place / "kubelet.sock").symlink_to("../device-plugins/kubelet.sock")
        yield f"{INSIDE}/{place.name}"
    finally:
        shutil.rmtree(place)
        verdict.provoked.append(range(start, log.stat().st_size))  # it does not name the resource


# --- What others deploy -----------------------------------------------------------------------------------------------


@contextmanager
def daemon_set(name: str, namespace: str = "default", image: str = IMAGE, **pod: Any) -> Iterator[None]:
    """A DaemonSet. `pod` goes into the pod's spec; `labels` and `strategy` have their own places.

    The doctor takes it for a plugin by its name: vgpu. What a kubelet says of pods named device-plugin would be held
    against Fairlead.
    """
    labels = pod.pop("labels", {"app": name})
    strategy = pod.pop("strategy", {})
    container = {"name": "main", "image": image, "imagePullPolicy": "Never", "command": ["sleep", "1000000"]}
    spec = {"containers": [container], "hostNetwork": True, "terminationGracePeriodSeconds": 0, **pod}
    spec["automountServiceAccountToken"] = False
    template = {"metadata": {"labels": labels}, "spec": spec}
    rolling = {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": strategy}} if strategy else {}
    api, path = Api(), SETS.format(namespace)
    body = {"selector": {"matchLabels": labels}, "template": template, **rolling}
    api.call("POST", path, {"metadata": {"name": name}, "spec": body})
    try:
        yield
    finally:
        with suppress(RefusedError):
            api.call("DELETE", f"{path}/{name}", {"propagationPolicy": "Background"})
        pods = f"/api/v1/namespaces/{namespace}/pods"
        until(lambda: not [one for one in api.get(pods)["items"] if _is_of(one, name)], "its pods are gone", CURE_S)


@contextmanager
def marked(metadata: dict[str, Any] | None = None, **spec: Any) -> Iterator[None]:
    """The node with these labels, annotations or taints; afterwards without them."""
    api, path = Api(), f"/api/v1/nodes/{NODE}"
    plain = {part: dict.fromkeys(keys) for part, keys in (metadata or {}).items()}
    api.call("PATCH", path, {"metadata": metadata or {}, "spec": spec}, MERGE)
    try:
        yield
    finally:
        api.call("PATCH", path, {"metadata": plain, "spec": dict.fromkeys(spec)}, MERGE)


@contextmanager
def namespace(labels: dict[str, str]) -> Iterator[str]:
    api, name = Api(), f"doctor-{secrets.token_hex(3)}"
    api.call("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
    try:
        yield name
    finally:
        api.call("DELETE", f"/api/v1/namespaces/{name}")


@contextmanager
def image_named(name: str) -> Iterator[None]:
    """The node's image, by another name too."""
    ctr = [str(BIN / "ctr"), "-a", str(CONTAINERD), "-n", SPACE, "images"]
    subprocess.run([*ctr, "tag", IMAGE, name], check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run([*ctr, "rm", name], check=True, capture_output=True)


def _is_of(pod: Any, name: str) -> bool:
    return any(owner["name"] == name for owner in pod["metadata"].get("ownerReferences", ()))


def status_of(name: str, namespace: str = "default") -> Any:
    return Api().get(f"{SETS.format(namespace)}/{name}")["status"]

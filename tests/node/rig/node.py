"""Brings the node up and down, in the right order, and restarts its kubelet.

Works on a node that another command has started: all it knows is in the state directory.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from pathlib import Path

from tests.node.rig import certificates, groups, house, images, needs, process, settings, sweep
from tests.node.rig.api import Api, RefusedError
from tests.node.rig.places import (
    BIN,
    CERTS,
    CNI,
    CONFIG,
    CONTAINERD,
    HOST,
    INSIDE,
    LOGS,
    MARK,
    NODE,
    PIDS,
    PODS,
    RUN,
    SERVICES_RANGE,
    STATE,
    choose_ports,
    ports,
)
from tests.node.rig.steps import NodeFailedError, step

CONTROL_PLANE = ("kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd")


def is_up() -> bool:
    return all(process.running(name) for name in ("kubelet", "containerd", *CONTROL_PLANE))


def up() -> dict[str, Path]:
    """From nothing to a Ready node. What fails half-way is taken down again."""
    needs.check()
    if STATE.exists():
        down()
    needs.install()
    programs = needs.build()
    began = time.monotonic()
    try:
        _prepare(programs)
        _start(programs)
    except BaseException:
        down()
        raise
    print(f"· the node is Ready: {time.monotonic() - began:.1f} s in all", file=sys.stderr, flush=True)
    return programs


def down() -> None:
    """Kubelet first, or it would start again what is being ended; then sandboxes; then everything else."""
    with step("ending the kubelet"):
        process.end("kubelet")
    if process.running("containerd"):
        with step("removing sandboxes"):
            sweep.remove_sandboxes(BIN / "ctr")
    for name in ("containerd", *CONTROL_PLANE):
        if process.running(name):
            with step(f"ending {name}"):
                process.end(name)
    with step("sweeping"):
        sweep.sweep()
    left = sweep.leftovers()
    sweep.forget()
    if left:
        raise NodeFailedError(f"the node left something behind: {', '.join(left)}")


def start_kubelet(*, wait: bool = True) -> None:
    binary = (BIN / "kubelet").resolve()
    names = [f"--kubeconfig={CONFIG}/kubelet.kubeconfig", f"--hostname-override={NODE}", f"--root-dir={INSIDE}"]
    process.start("kubelet", house.inside(binary, f"--config={CONFIG}/kubelet.json", *names, "--v=2"))
    if wait:
        wait_ready()


def wait_ready() -> None:
    process.wait(_ready, "the node is Ready", "kubelet")


def stop_kubelet(with_signal: signal.Signals = signal.SIGTERM) -> None:
    process.end("kubelet", with_signal)


def stop_apiserver() -> None:
    """As a crash."""
    process.end("kube-apiserver", signal.SIGKILL)


def start_apiserver() -> None:
    _apiserver((BIN / "kube-apiserver").resolve())
    process.wait(_healthy, "the API is ready", "etcd", "kube-apiserver")


def _prepare(programs: dict[str, Path]) -> None:
    for directory in (STATE, RUN, BIN, LOGS, PIDS, PODS, CERTS, CONFIG, CNI):
        directory.mkdir(parents=True, exist_ok=True)
    MARK.touch()
    choose_ports()
    groups.make()
    for name, binary in programs.items():
        (BIN / name).symlink_to(binary)
    with step("making certificates"):
        certificates.make()
    settings.write(programs["containerd-shim-runc-v2"])


def _start(programs: dict[str, Path]) -> None:
    with step("starting etcd and containerd"):
        house.open_house()
        _etcd(programs["etcd"])
        process.start("containerd", house.inside(programs["containerd"], "--config", CONFIG / "containerd.toml"))
        process.wait(CONTAINERD.exists, "containerd listens", "containerd")
    with step("starting kube-apiserver"):
        _apiserver(programs["kube-apiserver"])
        process.wait(_healthy, "the API is ready", "etcd", "kube-apiserver")
    with step("making and importing images"):
        images.make_own()
    with step("starting kube-scheduler, kube-controller-manager and the kubelet"):
        _controllers(programs)
        start_kubelet()
        process.wait(_settled, "pods can be made", "kubelet", "kube-scheduler", "kube-controller-manager")


def _etcd(binary: Path) -> None:
    client, peer = f"http://{HOST}:{ports().etcd}", f"http://{HOST}:{ports().etcd_peer}"
    urls = [f"--listen-client-urls={client}", f"--advertise-client-urls={client}", f"--listen-peer-urls={peer}"]
    urls += [f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}"]
    # The state is thrown away: nothing is worth waiting for the disk.
    process.start("etcd", [binary, f"--data-dir={STATE}/etcd", *urls, "--unsafe-no-fsync"])


def _apiserver(binary: Path) -> None:
    key = certificates.file
    flags = {
        "etcd-servers": f"http://{HOST}:{ports().etcd}",
        "bind-address": HOST,
        "advertise-address": HOST,
        "secure-port": str(ports().api),
        "endpoint-reconciler-type": "none",  # there is no address that pods could reach it at
        "service-cluster-ip-range": SERVICES_RANGE,
        "authorization-mode": "Node,RBAC",
        "enable-admission-plugins": "NodeRestriction",
        "allow-privileged": "true",
        "client-ca-file": key("ca", "crt"),
        "tls-cert-file": key("apiserver", "crt"),
        "tls-private-key-file": key("apiserver", "key"),
        "kubelet-client-certificate": key("apiserver-to-kubelet", "crt"),
        "kubelet-client-key": key("apiserver-to-kubelet", "key"),
        "kubelet-preferred-address-types": "InternalIP",
        "service-account-issuer": "https://kubernetes.default.svc",
        "service-account-key-file": key("accounts", "pub"),
        "service-account-signing-key-file": key("accounts", "key"),
    }
    process.start("kube-apiserver", [binary, *(f"--{name}={value}" for name, value in flags.items())])


def _controllers(programs: dict[str, Path]) -> None:
    quiet = ["--leader-elect=false", "--secure-port=0"]
    process.start("kube-scheduler", [programs["kube-scheduler"], f"--kubeconfig={CONFIG}/scheduler.kubeconfig", *quiet])
    accounts = [f"--service-account-private-key-file={certificates.file('accounts', 'key')}"]
    # Each controller as itself: the manager's own account may do little more than lend them theirs.
    accounts += [f"--root-ca-file={certificates.file('ca', 'crt')}", "--use-service-account-credentials=true"]
    who = f"--kubeconfig={CONFIG}/controller-manager.kubeconfig"
    # It makes the usual directory for drivers of volumes if it is not told of another.
    accounts += [f"--flex-volume-plugin-dir={STATE}/volume-plugins"]
    process.start("kube-controller-manager", [programs["kube-controller-manager"], who, *accounts, *quiet])


def _healthy() -> bool:
    with contextlib.suppress(OSError, RefusedError):
        return bool(Api().get("/readyz") == "ok")
    return False


def _ready() -> bool:
    with contextlib.suppress(OSError, RefusedError):
        conditions = Api().get(f"/api/v1/nodes/{NODE}")["status"].get("conditions", ())
        return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
    return False


def _settled() -> bool:
    """The default account is there, and nothing keeps pods away from the node."""
    with contextlib.suppress(OSError, RefusedError):
        Api().get("/api/v1/namespaces/default/serviceaccounts/default")
        return not Api().get(f"/api/v1/nodes/{NODE}")["spec"].get("taints")
    return False

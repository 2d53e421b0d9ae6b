"""A control plane for tests: etcd, kube-apiserver and kube-scheduler on loopback, in a directory of their own.

There is no kubelet. A node is what is written of it, and a pod that is bound stays Pending, unless kwok plays the
kubelets (`stages.yaml`): then it runs, and ends.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from fairlead.cli.scheduler import configuration
from fairlead.cluster.access import find_access
from fairlead.cluster.client import AnyObject, Client, Meta
from fairlead.cluster.errors import ClusterError, Conflict, NotFound
from fairlead.cluster.kinds import NODES, PODS, Kind
from fairlead.cluster.reflector import Reflector
from fairlead.config.schedulerspec import ResourceSpec, SchedulerSpec, System
from fairlead.kit.clock import SystemClock
from tests import toolchain
from tests.cluster.judge import GPUSHARE, NATIVE, Ledger, Sharing

PROGRAMS = ("etcd", "kube-apiserver", "kube-scheduler")
STAGES = Path(__file__).parent / "stages.yaml"
PATIENCE_S = 180.0  # for what takes seconds on a machine that has nothing else to do
TOKEN = "of-the-tests"
AT_ONCE = 32
PRIORITIES = Kind("scheduling.k8s.io", "v1", "priorityclasses")
Object = dict[str, Any]
# One extender for both systems.
RESOURCES = (ResourceSpec(System.GPUSHARE), ResourceSpec(System.FAIRLEAD, NATIVE.resource, NATIVE.count))


@dataclass(frozen=True)
class Settings:
    """What a test wants otherwise of the control plane."""

    gates: str = ""  # features of the API server and of kube-scheduler that are off by default
    apis: str = ""  # groups and versions that are off by default
    rbac: bool = False  # accounts may do what their roles allow, and every request of theirs is in `audit.log`


class Process:
    """One program, with its log in a file."""

    def __init__(self, words: Iterable[str | Path], log: Path, env: Mapping[str, str] | None = None) -> None:
        self._words, self._log, self._env = [str(word) for word in words], log, dict(env or {})
        self._running: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._running = subprocess.Popen(
                self._words, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env={**os.environ, **self._env}
            )

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        if self._running is not None and self._running.poll() is None:
            self._running.send_signal(number)
            try:
                self._running.wait(20)
            except subprocess.TimeoutExpired:
                self._running.kill()
                self._running.wait()
        self._running = None

    @property
    def pid(self) -> int:
        assert self._running is not None
        return self._running.pid

    def check(self) -> None:
        if self._running is not None and self._running.poll() is not None:
            raise AssertionError(f"{self._words[0]} ended:\n{self.tail()}")

    def tail(self, lines: int = 30) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:])


class Plane:
    def __init__(self, home: Path, settings: Settings | None = None) -> None:
        self.home, self._settings = home, settings or Settings()
        ports = free_ports(4)
        self._etcd_port, self._peer_port, self.api_port, self.extender_port = ports
        self.processes: dict[str, Process] = {}
        self.kubeconfig = home / "kubeconfig"
        self._programs = {name: toolchain.build(name) for name in PROGRAMS}
        self._write_files()
        self._following: list[asyncio.Task[None]] = []
        access = find_access({}, SystemClock(), kubeconfig=str(self.kubeconfig))
        self.client = Client(access, SystemClock(), attempt_s=PATIENCE_S / 3, patience_s=PATIENCE_S)

    def _write_files(self) -> None:
        subprocess.run(
            ["openssl", "genrsa", "-out", self.home / "accounts.key", "2048"], check=True, capture_output=True
        )
        (self.home / "tokens").write_text(f"{TOKEN},admin,admin,system:masters\n")
        cluster = {"server": f"https://127.0.0.1:{self.api_port}", "insecure-skip-tls-verify": True}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": {"token": TOKEN}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        self.kubeconfig.write_text(json.dumps(config))

    def process(self, name: str, *words: str | Path, **env: str) -> Process:
        made = self.processes[name] = Process(words, self.home / f"{name}.log", env)
        return made

    async def start(self) -> None:
        etcd, peer = (f"http://127.0.0.1:{port}" for port in (self._etcd_port, self._peer_port))
        self.process(
            "etcd",
            self._programs["etcd"],
            f"--data-dir={self.home}/etcd",
            f"--listen-client-urls={etcd}",
            f"--advertise-client-urls={etcd}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",  # the state is thrown away
        ).start()
        key, more = self.home / "accounts.key", self._settings
        self.process(
            "kube-apiserver",
            self._programs["kube-apiserver"],
            f"--etcd-servers={etcd}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self.api_port}",
            f"--cert-dir={self.home}/certs",
            "--endpoint-reconciler-type=none",
            "--service-cluster-ip-range=10.0.0.0/24",
            f"--feature-gates={more.gates}",
            f"--runtime-config={more.apis}",
            f"--authorization-mode={'RBAC' if more.rbac else 'AlwaysAllow'}",
            *((f"--audit-policy-file={self._audit_policy()}", f"--audit-log-path={self.audit}") if more.rbac else ()),
            # No controller makes accounts, and none takes taints away.
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
            f"--token-auth-file={self.home}/tokens",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
        ).start()
        await self.until(self._answers, "the API server answers")
        if more.rbac:  # its own roles are made last
            await self.until(lambda: is_well(self.api_port, "/readyz", tls=True), "the API server is ready")

    @property
    def audit(self) -> Path:
        """One JSON object a line: an answered request of an account."""
        return self.home / "audit.log"

    def _audit_policy(self) -> Path:
        file = self.home / "audit-policy.json"
        accounts = {"level": "Metadata", "userGroups": ["system:serviceaccounts"]}
        policy = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [accounts, {"level": "None"}]}
        file.write_text(json.dumps({**policy, "omitStages": ["RequestReceived"]}))
        return file

    async def _answers(self) -> bool:
        try:
            await self.client.list(NODES, AnyObject, patience_s=0.0)
        except ClusterError:
            return False
        return True

    async def start_scheduler(self, configuration: str) -> None:
        file = self.home / "scheduler.yaml"
        file.write_text(f"{configuration}clientConnection: {{kubeconfig: {self.kubeconfig}, qps: 1000, burst: 2000}}\n")
        self.process(
            "kube-scheduler",
            self._programs["kube-scheduler"],
            f"--config={file}",
            "--leader-elect=false",
            "--secure-port=0",
            f"--feature-gates={self._settings.gates}",
        ).start()

    async def start_kwok(self) -> None:
        """Instead of kubelets, for all nodes. Without leases: their renewal would be most of what is written."""
        self.process(
            "kwok",
            toolchain.build("kwok"),
            f"--kubeconfig={self.kubeconfig}",
            f"--config={STAGES}",
            "--manage-all-nodes=true",
            "--node-lease-duration-seconds=0",
            f"--server-address=127.0.0.1:{free_ports(1)[0]}",
        ).start()

    async def start_extender(self, config: Object) -> None:
        file = self.home / "extender.json"
        file.write_text(json.dumps({"listen": [f"127.0.0.1:{self.extender_port}"], **config}))
        words = (sys.executable, "-m", "fairlead", "scheduler", "--config", file)
        self.process("extender", *words, KUBECONFIG=str(self.kubeconfig)).start()
        await self.until(self._extender_ready, "the extender is ready")

    async def begin(self, resources: tuple[ResourceSpec, ...] = RESOURCES) -> None:
        """The extender, and kube-scheduler as `fairlead scheduler config` tells it."""
        await self.start_extender({"resources": msgspec.to_builtins(resources)})
        spec, url = SchedulerSpec(resources=resources), f"http://127.0.0.1:{self.extender_port}"
        await self.start_scheduler(configuration(spec, url, "default-scheduler"))

    async def _extender_ready(self) -> bool:
        return await is_well(self.extender_port, "/readyz")

    async def metric(self, name: str) -> float:
        """What the extender tells Prometheus under this name, with its labels."""
        page = await ask(self.extender_port, "/metrics")
        return next(float(line.rpartition(" ")[2]) for line in page.splitlines() if line.startswith(f"{name} "))

    async def until(
        self, condition: Callable[[], bool | Awaitable[bool]], what: str, patience_s: float = PATIENCE_S
    ) -> None:
        try:
            async with asyncio.timeout(patience_s):
                while True:
                    found = condition()
                    if await found if inspect.isawaitable(found) else found:
                        return
                    for process in self.processes.values():
                        process.check()
                    await asyncio.sleep(0.1)
        except TimeoutError:
            tails = "\n".join(f"{name}: {one.tail(8)}" for name, one in self.processes.items())
            raise AssertionError(f"not in {patience_s:g} s: {what}\n{tails}") from None

    async def end(self) -> None:
        for task in self._following:
            task.cancel()
        for name, process in self.processes.items():
            # Our own ends as it should. Of the others nothing is kept, and an API server waits for its watches.
            process.end(signal.SIGTERM if name == "extender" else signal.SIGKILL)
        await asyncio.gather(*self._following, return_exceptions=True)
        await self.client.close()

    # --- Objects ----------------------------------------------------------------------------------------------------

    async def add_nodes(self, names: Iterable[str], labels: Mapping[str, str] | None = None) -> None:
        offer = {**GPUSHARE.offer, **NATIVE.offer}
        await self.create(NODES, [node(name, offer, labels={"name": name, **(labels or {})}) for name in names])

    async def create(self, kind: Kind, things: Iterable[Object], namespace: str = "") -> list[Meta]:
        """Many at once: one after the other, thousands would take minutes. What is there already is left out."""
        turn = asyncio.Semaphore(AT_ONCE)
        made: list[Meta] = []

        async def one(thing: Object) -> None:
            async with turn:
                with suppress(Conflict):
                    made.append((await self.client.create(kind, thing, AnyObject, namespace=namespace)).metadata)

        async with asyncio.TaskGroup() as group:
            for thing in things:
                group.create_task(one(thing))
        return made

    async def delete(self, *names: str) -> None:
        turn = asyncio.Semaphore(AT_ONCE)

        async def one(name: str) -> None:
            async with turn:
                with suppress(NotFound):
                    await self.client.delete(PODS, name, namespace="default")

        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(one(name))

    async def follow(self, *sharings: Sharing) -> Ledger:
        """What the API server has of pods, from now on."""
        ledger = Ledger(*sharings)
        await self.follow_by(ledger)
        return ledger

    async def follow_by(self, ledger: Ledger) -> None:
        reflector = Reflector(self.client, PODS, dict[str, Any], ledger)
        self._following.append(asyncio.create_task(reflector.run()))


async def ask(port: int, path: str, *, tls: bool = False) -> str:
    """The whole answer of a server on this machine. Its certificate is not checked, as by a kubelet's probe."""
    context = ssl.create_default_context() if tls else None
    if context is not None:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    return answer.decode()


async def is_well(port: int, path: str, *, tls: bool = False) -> bool:
    try:
        return " 200 " in (await ask(port, path, tls=tls))[:20]
    except OSError:
        return False


def free_ports(count: int) -> list[int]:
    taken = [socket.socket() for _ in range(count)]
    for one in taken:
        one.bind(("127.0.0.1", 0))
    ports = [int(one.getsockname()[1]) for one in taken]
    for one in taken:
        one.close()
    return ports


@asynccontextmanager
async def control_plane(home: Path, settings: Settings | None = None) -> AsyncIterator[Plane]:
    plane = Plane(home, settings)
    try:
        await plane.start()
        yield plane
    finally:
        await plane.end()


# --- What is written down ---------------------------------------------------------------------------------------------


def node(name: str, amounts: Mapping[str, int], **meta: Any) -> Object:
    offered = {"cpu": "64", "memory": "512Gi", "pods": "250", **{key: str(value) for key, value in amounts.items()}}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, **meta},
        "status": {
            "capacity": offered,
            "allocatable": offered,
            "conditions": [{"type": "Ready", "status": "True", "reason": "Written"}],
        },
    }


def pod(name: str, limits: Mapping[str, int], labels: Mapping[str, str] | None = None, **spec: Any) -> Object:
    resources = {"limits": {key: str(value) for key, value in limits.items()}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": dict(labels or {})},
        "spec": {
            "containers": [{"name": "main", "image": "example.com/none", "resources": resources}],
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            **spec,
        },
    }

"""Builds the Go programs of tests/go, tests/node/go, tests/cluster/go, tests/chart/go and tests/peers into a cache.

The cache is outside the work tree. Owns finding Go, the cache key and the download retries. Must not know what the
programs are for.
`python -m tests.toolchain` builds those of tests/go, so that the first test does not have to wait;
`python -m tests.toolchain node` builds those of the node, which takes a quarter of an hour the first time;
`python -m tests.toolchain cluster` builds those of the simulated cluster, some of them the node's: ten minutes;
`python -m tests.toolchain peers` builds the other systems that ours is held against: a few minutes;
`python -m tests.toolchain chart` builds helm: about five minutes.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

GO_ROOT = Path(__file__).parent / "go"
NODE_ROOT = Path(__file__).parent / "node" / "go"
CLUSTER_ROOT = Path(__file__).parent / "cluster" / "go"
CHART_ROOT = Path(__file__).parent / "chart" / "go"
NVIDIA_ROOT = Path(__file__).parent / "peers" / "nvidia" / "go"
OLDEST_GO = (1, 26)  # what k8s.io/kubelet's own go.mod asks for
DOWNLOAD_PAUSES_S = (0.0, 5.0, 15.0, 45.0)  # a module proxy that is asked too fast says 429; it forgives a pause
TICK_S = 5.0


class ToolchainMissingError(Exception):
    """This machine cannot build Go programs; the text says why."""


class BuildFailedError(Exception):
    """Go is here and the modules are here, but the program does not build."""


@dataclass(frozen=True, slots=True)
class Program:
    module: Path  # the directory of its go.mod
    package: str  # what `go build` is asked for
    sources: str  # a pattern inside the module: what a rebuild depends on, besides go.mod and go.sum
    stamp: str = ""  # linker flags that tell the program its version
    tags: str = ""
    cgo: str = ""  # CGO_LDFLAGS of a program that is partly C; without them no C compiler is asked for
    # Lays out the sources of a test binary, given the go command; answers where. None: the package as it is.
    stage: Callable[[str], Path] | None = None


def required(module: Path, path: str) -> str:
    """The version at which a go.mod pins a module: it stands there and nowhere else."""
    found = re.search(rf"^(?:require )?\s*{re.escape(path)} (v\S+)", (module / "go.mod").read_text(), re.MULTILINE)
    if found is None:
        raise BuildFailedError(f"{module / 'go.mod'} does not require {path}")
    return found[1]


def _kubernetes(command: str, module: Path = NODE_ROOT / "kubernetes") -> Program:
    version = required(module, "k8s.io/kubernetes")
    major, minor = version.removeprefix("v").split(".")[:2]
    # Without these a kubelet calls itself v0.0.0-master, and the API server refuses to judge its age.
    known = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    stamp = " ".join(f"-X k8s.io/component-base/version.{key}={value}" for key, value in known.items())
    return Program(module, f"k8s.io/kubernetes/cmd/{command}", "*.go", stamp)


def _containerd(command: str) -> Program:
    module, path = NODE_ROOT / "containerd", "github.com/containerd/containerd/v2"
    stamp = f"-X {path}/version.Version={required(module, path)}"
    return Program(module, f"{path}/cmd/{command}", "*.go", stamp, tags="no_btrfs,no_zfs")


def _nvidia(command: str) -> Program:
    path = "github.com/NVIDIA/k8s-device-plugin"
    # The driver's library is looked for when the program runs: till then its functions are unresolved, lazily bound.
    stamp = f"-X {path}/internal/info.version={required(NVIDIA_ROOT, path)} -extldflags=-Wl,-z,lazy"
    cgo = "-Wl,--unresolved-symbols=ignore-in-object-files"
    return Program(NVIDIA_ROOT, f"{path}/cmd/{command}", "*.go", stamp, cgo=cgo)


def _helm() -> Program:
    module, path = CHART_ROOT / "helm", "helm.sh/helm/v4"
    stamp = f"-X {path}/internal/version.version={required(module, path)}"
    return Program(module, f"{path}/cmd/helm", "*.go", stamp)


PROGRAMS = {
    "kubeletclient": Program(GO_ROOT, "./kubeletclient", "kubeletclient/*.go"),
    "emptyplugin": Program(GO_ROOT, "./emptyplugin", "emptyplugin/*.go"),
    "h2spec": Program(GO_ROOT / "h2spec", "github.com/summerwind/h2spec/cmd/h2spec", "*.go"),
    "cdicheck": Program(GO_ROOT / "cdicheck", ".", "*.go"),
    # Upstream's sample plugin, of the very version that the node has: one go.mod pins both.
    "sample-device-plugin": Program(
        NODE_ROOT / "kubernetes", "k8s.io/kubernetes/test/images/sample-device-plugin", "*.go"
    ),
}

NODE_PROGRAMS = {
    # The kubelet first: it compiles most of what the others share.
    **{name: _kubernetes(name) for name in ("kubelet", "kube-apiserver", "kube-controller-manager", "kube-scheduler")},
    "kubectl": _kubernetes("kubectl"),
    "etcd": Program(NODE_ROOT / "etcd", ".", "*.go"),
    **{name: _containerd(name) for name in ("containerd", "containerd-shim-runc-v2", "ctr")},
}

CLUSTER_PROGRAMS = {
    **{name: NODE_PROGRAMS[name] for name in ("kube-apiserver", "kube-scheduler", "etcd")},
    "kwok": Program(CLUSTER_ROOT / "kwok", "sigs.k8s.io/kwok/cmd/kwok", "*.go"),
}

# Kubernetes' own benchmark of kube-scheduler: a test, with the API server and the scheduler inside. The bench runs it.
PERF_PROGRAMS = {
    "scheduler-perf": Program(
        CLUSTER_ROOT / "schedulerperf", ".", "*.go", stage=lambda _go: CLUSTER_ROOT / "schedulerperf"
    )
}

# Kubelets of other minor versions. The rest of the node may be newer than its kubelet.
KUBELETS = {"kubelet-1.35": _kubernetes("kubelet", NODE_ROOT / "kubernetes-1.35")}

PEER_PROGRAMS = {name: _nvidia(name) for name in ("nvidia-device-plugin", "gpu-feature-discovery")}


CHART_PROGRAMS = {"helm": _helm()}


def cache_dir() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "fairlead" / "go"


@functools.cache
def find_go() -> tuple[str, str]:
    """The go command and its version."""
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        raise ToolchainMissingError(f"no Go toolchain found; install Go {_dotted(OLDEST_GO)} or newer")
    version = run([go, "env", "GOVERSION"], GO_ROOT).stdout.strip()
    parts = version.removeprefix("go").split(".")
    if len(parts) < 2 or not parts[0].isdigit() or not parts[1].isdigit():
        raise ToolchainMissingError(f"{go} does not tell its version; it said {version!r}")
    if (int(parts[0]), int(parts[1])) < OLDEST_GO:
        raise ToolchainMissingError(f"{go} is {version}; Go {_dotted(OLDEST_GO)} or newer is needed")
    return go, version


def build(name: str) -> Path:
    """The path of a built program, from the cache where its sources are unchanged."""
    known = {**PROGRAMS, **NODE_PROGRAMS, **CLUSTER_PROGRAMS, **PERF_PROGRAMS, **KUBELETS, **PEER_PROGRAMS}
    return make(name, (known | CHART_PROGRAMS)[name])


def make(name: str, program: Program) -> Path:
    go, version = find_go()
    binary = cache_dir() / f"{name}-{_fingerprint(program, version)}"
    if binary.exists():
        return binary
    binary.parent.mkdir(parents=True, exist_ok=True)
    with (binary.parent / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test workers may want the same program
        if binary.exists():
            return binary
        with _progress(f"fetching Go modules for {name}"):
            _download(go, program)
        fresh = binary.with_suffix(f".{os.getpid()}")
        with _progress(f"building {name} with {version}"):
            flags = ["-trimpath", f"-ldflags=-s -w {program.stamp}", f"-tags={program.tags}"]
            # vet: what is compiled here is not ours to judge.
            verb, where = (["build"], program.module)
            if program.stage is not None:
                verb, where = ["test", "-c", "-vet=off"], program.stage(go)
            done = run([go, *verb, *flags, "-o", str(fresh), program.package], where, program.cgo)
        if done.returncode != 0:
            raise BuildFailedError(f"{name} does not build:\n{done.stderr.strip()}")
        fresh.replace(binary)
    return binary


def build_or_skip(name: str) -> Path:
    """For tests: skips where there is no Go, except in CI, where that is a failure."""
    import pytest  # here, because the bench builds programs too and has no use for pytest

    try:
        return build(name)
    except ToolchainMissingError as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI must have what this test needs: {missing}", pytrace=False)
        pytest.skip(str(missing))


def _download(go: str, program: Program) -> None:
    problem = ""
    for pause_s in DOWNLOAD_PAUSES_S:
        time.sleep(pause_s)
        done = run([go, "mod", "download"], program.module)
        if done.returncode == 0:
            return
        problem = done.stderr.strip()
        if "429" not in problem:
            break
    raise ToolchainMissingError(f"Go modules cannot be fetched: {problem.splitlines()[-1] if problem else 'no reason'}")


def _fingerprint(program: Program, version: str) -> str:
    digest = hashlib.sha256(f"{version}\0{program.stamp}\0{program.tags}{program.cgo and chr(0)}{program.cgo}".encode())
    files = [program.module / "go.mod", program.module / "go.sum", *sorted(program.module.glob(program.sources))]
    for file in files:
        digest.update(f"\0{file.name}\0".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def run(command: list[str], cwd: Path, cgo: str = "") -> subprocess.CompletedProcess[str]:
    # GOTOOLCHAIN: an older Go must say so instead of fetching another Go. GOWORK: a workspace above us is not ours.
    env = os.environ | {"GOTOOLCHAIN": "local", "GOWORK": "off", "CGO_ENABLED": "1" if cgo else "0", "CGO_LDFLAGS": cgo}
    # Nice: the large ones take minutes, and somebody may want to use the machine.
    return subprocess.run(["nice", *command], cwd=cwd, env=env, capture_output=True, text=True, check=False)


@contextlib.contextmanager
def _progress(what: str) -> Iterator[None]:
    """A line now and every few seconds: a cold build takes minutes, and silence looks like a hang."""
    start, over = time.monotonic(), threading.Event()

    def tick() -> None:
        while not over.wait(TICK_S):
            print(f"· {what}: {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)

    print(f"· {what}", file=sys.stderr, flush=True)
    ticker = threading.Thread(target=tick, daemon=True)
    ticker.start()
    try:
        yield
    finally:
        over.set()
        ticker.join()
        print(f"· {what}: done in {time.monotonic() - start:.1f} s", file=sys.stderr, flush=True)


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def main() -> int:
    groups = {"node": NODE_PROGRAMS, "cluster": CLUSTER_PROGRAMS, "peers": PEER_PROGRAMS, "chart": CHART_PROGRAMS}
    for name in groups.get("".join(sys.argv[1:]), PROGRAMS):
        try:
            print(build(name))
        except (ToolchainMissingError, BuildFailedError) as error:
            print(error, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

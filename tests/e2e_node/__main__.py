"""`make e2e-node`: runs the specs on a few nodes at a time, prints one table, leaves nothing behind."""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests import toolchain
from tests.e2e_node import images, node, report, suite
from tests.e2e_node.node import Node
from tests.e2e_node.places import HIDDEN, LOCK, ROOT, STATE
from tests.e2e_node.report import Row
from tests.e2e_node.suite import SPECS, TELLING, TELLING_WORDS, Spec
from tests.node.rig import needs
from tests.node.rig.steps import NodeFailedError, NodeMissingError, step

PROGRAMS = ("kubelet", "containerd", "containerd-shim-runc-v2", "ctr")
TOOLS = ("unshare", "ip", "mount", "hostname")
LIMIT_S = 1500.0  # for one node: the suite's own limit is shorter
LOOK_S = 0.2
BROKEN = "broken"  # the name of the node with the broken plugin


@dataclass(frozen=True, slots=True)
class Job:
    """What one node does: one spec, with one plugin. Specs do not share a node: what one leaves would meet the next."""

    name: str
    spec: Spec
    images: Path


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.e2e_node", description=__doc__)
    parser.add_argument("--write-docs", action="store_true", help="write the table into docs/guide/e2e-node.md")
    parser.add_argument(
        "--only", metavar="TEXT", default="", help="only specs with this in their name, without the broken plugin"
    )
    parser.add_argument("--nodes", type=int, default=3, help="how many nodes at once (3 is what two CPUs can bear)")
    parser.add_argument("--stage", action="store_true", help="lay out the suite's sources, print where, and end")
    parser.add_argument("--clean", action="store_true", help="remove what an earlier run has left, and end")
    asked = parser.parse_args(words)
    if asked.write_docs and asked.only:
        parser.error("--write-docs is for a whole run")
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        if asked.stage:
            print(suite.stage(toolchain.find_go()[0]))
            return 0
        needs.check_root()
        with _alone():
            if asked.clean:
                _clean()
                return 0
            return _run(asked)
    except (NodeMissingError, toolchain.ToolchainMissingError) as missing:
        must = os.environ.get("CI") == "true"
        print(f"e2e-node: {'CI must be able to run it' if must else 'skipped'}: {missing}", file=sys.stderr)
        return 1 if must else 0
    except (NodeFailedError, toolchain.BuildFailedError, OSError, ValueError) as error:
        print(f"e2e-node: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("e2e-node: interrupted", file=sys.stderr)
        return 130


def _run(asked: argparse.Namespace) -> int:
    _check()
    specs = tuple(spec for spec in SPECS if asked.only in spec.name)
    if not specs:
        raise ValueError(f"no spec has {asked.only!r} in its name")
    began = time.monotonic()
    _clean()  # an earlier run may have been killed
    try:
        programs = _programs()
        node.make_points()
        rows = _play(_jobs(specs, with_broken=not asked.only), programs, asked.nodes)
    finally:
        _clean()
    broken = rows.pop(BROKEN, None)
    by_spec = {row.spec: row for row in rows.values()}
    listed = [by_spec[spec] for spec in specs]
    text = report.table(listed, broken)
    passed = sum(row.passed for row in listed)
    print(f"{text}\n\n{passed} of {len(listed)} passed, {time.monotonic() - began:.0f} s in all")
    good = all(row.passed for row in listed) and (broken is None or broken.failed_with(TELLING_WORDS))
    for row in (*listed, *([broken] if broken else [])):
        if row.why and not (row is broken and good):
            print(f"\n{row.spec.name}: {row.result}\n{row.why[-1200:]}", file=sys.stderr)
    if good and asked.write_docs:
        report.write(text)
    return 0 if good else 1


def _check() -> None:
    needs.check()
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        raise NodeMissingError(f"these commands are missing: {', '.join(missing)}")
    for path in (ROOT, Path(sys.prefix), Path(sys.base_prefix), toolchain.cache_dir()):
        if any(path.resolve().is_relative_to(hidden) for hidden in HIDDEN):
            raise NodeMissingError(f"{path} must not lie in {' or '.join(map(str, HIDDEN))}: a node has its own there")
    needs.install()


def _programs() -> Mapping[str, Path]:
    return {"suite": suite.build(), **{name: toolchain.build(name) for name in PROGRAMS}}


def _jobs(specs: tuple[Spec, ...], *, with_broken: bool) -> list[Job]:
    STATE.mkdir(parents=True, exist_ok=True)
    with step("making images"), tempfile.TemporaryDirectory() as work:
        archives = images.make(STATE, Path(work), with_broken=with_broken)
    jobs = [Job(f"n{SPECS.index(spec)}", spec, archives[0]) for spec in specs]
    jobs += [Job(BROKEN, TELLING, archive) for archive in archives[1:]]
    return sorted(jobs, key=lambda job: -job.spec.about_s)


def _play(jobs: list[Job], programs: Mapping[str, Path], at_once: int) -> dict[str, Row]:
    """Runs the jobs, a few at a time; answers what came of each."""
    waiting = list(jobs)
    rows: dict[str, Row] = {}
    running: dict[str, tuple[Job, Node]] = {}
    while waiting or running:
        while waiting and len(running) < at_once:
            job = waiting.pop(0)
            running[job.name] = job, Node(job.name, programs, job.images, job.spec.focus)
        time.sleep(LOOK_S)
        for job, one in list(running.values()):
            late = time.monotonic() - one.began_s > LIMIT_S
            if one.ended() is not None or late:
                del running[job.name]
                one.end()
                rows[job.name] = _judge(job, one, "it took too long" if late else one.complaint())
                node.remove(one.place)
    return rows


def _judge(job: Job, one: Node, complaint: str) -> Row:
    row = report.read(one.place.results, job.spec, complaint)
    print(f"· {row.result:7} {row.seconds:4.0f} s  {job.name:6} {row.spec.name}", file=sys.stderr, flush=True)
    if not row.passed and job.name != BROKEN:
        kept = Path(tempfile.mkdtemp(prefix="fairlead-e2e-logs-"))
        shutil.copytree(one.place.reports, kept, dirs_exist_ok=True)
        print(f"· the logs of {job.name} are kept in {kept}", file=sys.stderr)
    return row


def _clean() -> None:
    left = node.remove_all()
    if left:
        raise NodeFailedError(f"this could not be removed: {', '.join(left)}")


@contextmanager
def _alone() -> Iterator[None]:
    with LOCK.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise NodeFailedError("another run of the suite is under way; wait until it has ended") from None
        yield


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`fairlead gpushare inspect [-d] [node]`: kubectl-inspect-gpushare, drop-in. Asks the API server, not a daemon."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from fairlead.cli.say import say
from fairlead.cluster.access import find_access
from fairlead.cluster.client import Client
from fairlead.cluster.kinds import NODES, PODS
from fairlead.cluster.objects import PodObject
from fairlead.config.settings import environment
from fairlead.dialects.goflags import BadFlag, Flag, Kind, parse, usage
from fairlead.kit.clock import SystemClock
from fairlead.kit.decoding import did_you_mean
from fairlead.model.errors import FairleadError
from fairlead.policy.pods.contract import Contract
from fairlead.programs.inspect.survey import DIALECTS, NodeObject, Survey, survey
from fairlead.programs.inspect.text import as_json, details, summary

PROGRAM = "fairlead gpushare inspect"
SUMMARY = "Shows how much memory of which GPU is taken, on one node or on all, and by which pods (-d)."
FAILED = 1  # the one code with which the original refuses
NOTES_MAX = 20

FLAGS = (
    Flag("d", Kind.BOOL, default=False, help="Each pod, by node."),
    Flag("json", Kind.BOOL, default=False, help="Everything, as JSON."),
    Flag("kubeconfig", help="How to reach the cluster: a file.", env=("KUBECONFIG",)),
    Flag("context", help="The context of the kubeconfig, if not its current one."),
    Flag("dialect", default="gpushare", help=f"Whose resources and annotations: {', '.join(DIALECTS)}."),
    Flag("help", Kind.BOOL, default=False, aliases=("h",), help="This text."),
)
# Every program with glog has these; they change no answer.
LOGGING = (
    *(Flag(name, Kind.BOOL) for name in ("alsologtostderr", "logtostderr")),
    *(Flag(name) for name in ("log_backtrace_at", "log_dir", "stderrthreshold", "v", "vmodule")),
)


def main(args: Sequence[str]) -> int:
    try:
        values, node = _parse(args)
        if values["help"]:
            _write(usage(f"{PROGRAM} [node]", SUMMARY, FLAGS))
            return 0
        found = asyncio.run(_look(values, node, _words(values["dialect"])))
        if values["json"]:
            _write(json.dumps(as_json(found), indent=2) + "\n")
        else:
            _write(details(found) if values["d"] else summary(found))
            _note(found.notes)
    except FairleadError as error:
        _say(str(error))
        return FAILED
    except KeyboardInterrupt:
        return 130
    return 0


def _parse(args: Sequence[str]) -> tuple[dict[str, Any], str]:
    """Flags may also come behind the node, up to a `--`."""
    names: list[str] = []
    flags: list[str] = []
    rest = list(args)
    while rest:
        after = list(parse((*FLAGS, *LOGGING), rest, {}).rest)
        flags += rest[: len(rest) - len(after)]
        if flags[-1:] == ["--"]:
            flags.pop()
            names += after
            break
        names += after[:1]
        rest = after[1:]
    if len(names) > 1:
        raise BadFlag(f"one node at a time, and not {' '.join(names)}. Name none to see all nodes")
    values = parse((*FLAGS, *LOGGING), flags, environment()).values
    return values, names[0] if names else ""


def _words(dialect: str) -> Contract:
    if dialect not in DIALECTS:
        raise BadFlag(f"no dialect {dialect!r}{did_you_mean(dialect, DIALECTS)}")
    return DIALECTS[dialect]


async def _look(values: dict[str, Any], node: str, names: Contract) -> Survey:
    clock = SystemClock()
    access = find_access(environment(), clock, kubeconfig=values["kubeconfig"] or "", context=values["context"] or "")
    client = Client(access, clock)
    alive = "status.phase!=Succeeded,status.phase!=Failed"
    try:
        if node:
            nodes: tuple[NodeObject, ...] = (await client.get(NODES, node, NodeObject),)
        else:
            nodes = (await client.list(NODES, NodeObject)).items
        where = f"spec.nodeName={node}" if node else "spec.nodeName!="
        pods = (await client.list(PODS, PodObject, fields=f"{where},{alive}")).items
    finally:
        await client.close()
    return survey(nodes, pods, names)


def _write(text: str) -> None:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:  # `| head`: the reader is gone, and the interpreter must not try again as it ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _note(notes: Sequence[str]) -> None:
    for note in notes[:NOTES_MAX]:
        _say(f"note: {note}")
    if len(notes) > NOTES_MAX:
        _say(f"note: and {len(notes) - NOTES_MAX} more; --json has them all")


def _say(text: str) -> None:
    say(text, PROGRAM)

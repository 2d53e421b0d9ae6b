"""`fairlead doctor`: what is wrong on this node, and the command that cures it. Asks and reads, changes nothing."""

from __future__ import annotations

import asyncio
import os
import platform
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fairlead.cli.draw import lacking, paint, wrapped
from fairlead.cli.node import where_options
from fairlead.cli.options import json_option, load_config, print_answer, socket_option
from fairlead.config.settings import DEFAULT_CONFIG, environment, overrides
from fairlead.model.errors import FairleadError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairlead.config.load import Loaded
    from fairlead.observe.plan import Plan
    from fairlead.programs.doctor.facts import DaemonFacts, Missing
    from fairlead.programs.doctor.findings import Finding, Report
    from fairlead.programs.doctor.gather import Own, Reach

FOUND = 1  # exit code
REFUSALS = 1000  # facts of the journal that are looked at: all that a daemon keeps
STYLES = {"error": "bad", "warning": "warn", "note": "accent"}


@click.command()
@click.option("--config", metavar="FILE", help="The daemon's configuration. Default: the one that the daemon names.")
@click.option("--host-root", default="/", show_default=True, metavar="DIR", help="Where the host's files are.")
@click.option("--plugin-dir", metavar="DIR", help="The kubelet's device-plugin directory. [FAIRLEAD_PLUGIN_DIR]")
@click.option("--pod-resources", metavar="PATH", help="The pod-resources socket. [FAIRLEAD_POD_RESOURCES]")
@where_options
@socket_option
@json_option
def doctor(config: str | None, host_root: str, socket: str | None, as_json: bool, **where: str | None) -> None:
    """Say what is wrong on this node, and how to cure it.

    Beside a daemon or without one, on the host or in a pod. A check that lacks something is "not looked at". Ends with
    1 if there is an error or a warning; with 0 if there is none, or only notes. Nothing is changed. A daemon that runs
    shows the summary in its status.
    """
    from fairlead.kit.clock import SystemClock  # noqa: PLC0415 - as below
    from fairlead.programs.doctor.checks import CHECKS  # noqa: PLC0415 - loads what reads a node
    from fairlead.programs.doctor.findings import Report, examine  # noqa: PLC0415 - as above
    from fairlead.programs.doctor.gather import gather  # noqa: PLC0415 - as above

    # What was given by hand is meant: a check that lacks it would hide the mistake.
    if config is not None and not Path(config).exists():
        raise UsageError(f"--config {config}: there is no such file")
    if not Path(host_root).is_dir():
        raise UsageError(f"--host-root {host_root}: it is no directory")
    own, loaded = _own(config, socket)
    report = examine(asyncio.run(gather(_reach(host_root, where, own, loaded), own, SystemClock())), CHECKS)
    _leave(own, report)
    print_answer(report, as_json, draw, Report)
    if report.counted:
        sys.exit(FOUND)


# --- What is known of Fairlead ----------------------------------------------------------------------------------------


def _own(config: str | None, socket: str | None) -> tuple[Own, Loaded | None]:
    from fairlead.programs.doctor.facts import Missing  # noqa: PLC0415 - as above
    from fairlead.programs.doctor.gather import Own  # noqa: PLC0415 - as above

    daemons = _daemons(socket)
    answers = Missing("a daemon answers: what it offers is taken from it")
    running = [] if isinstance(daemons, Missing) else [daemon.status.config for daemon in daemons]
    path = config or next((each for each in running if Path(each).is_file()), None) or DEFAULT_CONFIG
    if running and not config and not Path(path).is_file():
        unknown = Missing(f"the daemon's configuration is no file here: {running[0]}. Give one with --config")
        return Own(daemons, unknown, answers), None
    try:
        loaded = load_config(path, {})
    except FairleadError as error:
        unknown = Missing(str(error))
        return Own(daemons, unknown, answers if running else unknown), None
    return Own(daemons, loaded.config, answers if running else _plan(loaded)), loaded


def _daemons(socket: str | None) -> tuple[DaemonFacts, ...] | Missing:
    from fairlead.cli.daemons import ask_all  # noqa: PLC0415 - as above
    from fairlead.observe.control import ask  # noqa: PLC0415 - as above
    from fairlead.observe.status import Status, decode  # noqa: PLC0415 - as above
    from fairlead.programs.doctor.facts import DaemonFacts, Missing, Refusal  # noqa: PLC0415 - as above

    try:
        answers, silent = ask_all(socket, {"ask": "status"})
        if not answers:
            return Missing(str(silent[0]))
        found = []
        for each in answers:
            facts = ask(each.socket, {"ask": "journal", "count": REFUSALS})
            refused = [one for one in facts if one.get("event") == "allocate-refused"]
            refusals = tuple(Refusal(str(one.get("resource")), str(one.get("reason"))) for one in refused)
            found.append(DaemonFacts(str(each.socket), decode(each.answer, Status), refusals))
        return tuple(found)
    except FairleadError as error:
        return Missing(str(error))


def _leave(own: Own, report: Report) -> None:
    """The daemons show the summary. One that does not take it, as an older one, is left alone."""
    from fairlead.observe.control import ask  # noqa: PLC0415 - as above
    from fairlead.programs.doctor.facts import Missing  # noqa: PLC0415 - as above

    counts = {f"{name}s": sum(one.severity == name for one in report.findings) for name in STYLES}
    codes = [one.code for one in report.findings]
    for daemon in () if isinstance(own.daemons, Missing) else own.daemons:
        with suppress(FairleadError):
            ask(Path(daemon.socket), {"ask": "examined", **counts, "codes": codes})


def _plan(loaded: Loaded) -> Plan | Missing:
    from fairlead.app.backends import survey  # noqa: PLC0415 - loads the engine
    from fairlead.app.preview import preview  # noqa: PLC0415 - as above
    from fairlead.kit.clock import SystemClock  # noqa: PLC0415 - as above
    from fairlead.observe.plan import make_plan  # noqa: PLC0415 - as above
    from fairlead.programs.doctor.facts import Missing  # noqa: PLC0415 - as above

    async def make() -> Plan:
        inventory, problems = await survey(loaded, SystemClock())
        return make_plan(inventory, await preview(loaded, inventory), problems, loaded.amounts)

    try:
        return asyncio.run(make())
    except FairleadError as error:
        return Missing(str(error))


def _reach(root: str, where: Mapping[str, str | None], own: Own, loaded: Loaded | None) -> Reach:
    from fairlead.config.spec import KubeletSpec  # noqa: PLC0415 - as above
    from fairlead.programs.doctor.facts import Missing  # noqa: PLC0415 - as above
    from fairlead.programs.doctor.gather import Reach  # noqa: PLC0415 - as above

    around = environment()
    given = {"--plugin-dir": where["plugin_dir"], "--pod-resources": where["pod_resources"]}
    said = {item.path[-1]: str(item.value) for item in overrides(given)}
    kubelet = loaded.config.kubelet if loaded is not None else KubeletSpec()
    served = "" if isinstance(own.daemons, Missing) else own.daemons[0].status.directory
    in_pod = "KUBERNETES_SERVICE_HOST" in around
    named = where["node"] or around.get("NODE_NAME") or (loaded.config.cluster.node if loaded is not None else "")
    return Reach(
        root=os.path.realpath(root),
        plugin_dir=said.get("directory") or served or kubelet.directory,
        pod_resources=said.get("podResources") or kubelet.pod_resources or KubeletSpec().pod_resources,
        node=named or ("" if in_pod else platform.node().lower()),  # which the kubelet takes, unless it is told another
        kubeconfig=where["kubeconfig"] or "",
        context=where["context"] or "",
        environment=around,
        uid=os.getuid(),
        in_pod=in_pod,
    )


# --- For people -------------------------------------------------------------------------------------------------------


def draw(report: Report) -> str:
    counts = {name: sum(one.severity == name for one in report.findings) for name in STYLES}
    found = ", ".join(f"{count} {name}{'' if count == 1 else 's'}" for name, count in counts.items() if count)
    total = report.looked_at + len(report.not_looked_at)
    head = f"{report.looked_at} of {total} checks: {found or 'nothing found'}"
    if report.not_looked_at:
        head += f"; {len(report.not_looked_at)} not looked at"
    missing = lacking([(row.code, row.lacks) for row in report.not_looked_at])
    return "\n\n".join([paint(head, "bold"), *map(_finding, report.findings), *missing])


def _finding(one: Finding) -> str:
    head = f"{paint(f'{one.code} {one.severity}', STYLES[one.severity])}  {paint(one.title, 'bold')}"
    return "\n".join([head, *wrapped("seen", one.seen), *wrapped("why", one.why), f"  cure  {one.cure}"])

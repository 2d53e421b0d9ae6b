"""`fairlead audit`: where grants, the kubelet and the processes of the host contradict each other."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import click

from fairlead.cli.draw import lacking, paint, wrapped
from fairlead.cli.options import ask_daemon, json_option, print_answer, socket_option

if TYPE_CHECKING:
    from fairlead.policy.audit import Difference, Report

FOUND = 1  # exit code
CONFIRM_S = 2.0


@click.command()
@socket_option
@json_option
def audit(socket: str | None, as_json: bool) -> None:
    """Compare grants, the kubelet's view and processes.

    Asks the running daemon, which looks at once, and a second time 2 s later if something differs: a pod that comes or
    goes is no difference. Ends with 1 if there is one. Nothing is changed.
    """
    from fairlead.kit.clock import SystemClock  # noqa: PLC0415 - as below
    from fairlead.observe.status import decode  # noqa: PLC0415 - loads what the status is made of
    from fairlead.policy.audit import Report  # noqa: PLC0415 - as above

    report = decode(ask_daemon(socket, {"ask": "audit"}), Report)
    if report.unconfirmed:
        asyncio.run(SystemClock().sleep(CONFIRM_S))
        report = decode(ask_daemon(socket, {"ask": "audit"}), Report)
    print_answer(report, as_json, draw, Report)
    if report.differences:
        sys.exit(FOUND)


def draw(report: Report) -> str:
    count, kinds = len(report.differences), len(_kinds())
    looked = kinds - len(report.not_looked_at)
    found = f"{count} difference{'' if count == 1 else 's'}" if count else "nothing differs"
    head = f"{looked} of {kinds} comparisons: {found}"
    if report.not_looked_at:
        head += f"; {len(report.not_looked_at)} not looked at"
    missing = lacking([(each.kind, each.lacks) for each in report.not_looked_at])
    return "\n\n".join([paint(head, "bold"), *map(_difference, report.differences), *missing])


def _difference(one: Difference) -> str:
    return "\n".join([paint(one.kind, "bad"), *wrapped("seen", one.seen), f"  cure  {one.cure}"])


def _kinds() -> list[str]:
    from fairlead.policy.audit import Kind  # noqa: PLC0415 - as above

    return list(Kind)

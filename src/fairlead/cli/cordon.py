"""`fairlead cordon` and `uncordon`: orders to a running daemon. The daemon keeps them over its restarts."""

from __future__ import annotations

import click

from fairlead.cli.options import ask_daemon, json_option, print_answer, socket_option
from fairlead.model.errors import UsageError


@click.command()
@click.argument("device", required=False)
@click.option("--reason", metavar="TEXT", help="Why, in one line. Shown wherever the device is.")
@click.option("--for", "lasting", metavar="TIME", help="How long, such as 30m or 2h. Default: until `uncordon`.")
@socket_option
@json_option
def cordon(device: str | None, reason: str | None, lasting: str | None, socket: str | None, as_json: bool) -> None:
    """Keep a device from new pods.

    Pods that hold the device keep it. The cordon outlasts restarts of the daemon and of the node. Without a DEVICE, the
    devices that are cordoned are listed. A device is named by id, index or the beginning of an id; one with partitions
    is cordoned with all of them.

    \b
      fairlead cordon 3 --reason "fan is replaced" --for 2h
      fairlead cordon
      fairlead uncordon 3
    """  # noqa: D301 - click reads this backspace as "keep the lines"
    if device is None:
        if reason is not None or lasting is not None:
            raise UsageError("which device? Give its id or index: fairlead cordon DEVICE --reason TEXT")
        _list(socket, as_json=as_json)
        return
    if not (reason or "").strip():
        raise UsageError(f"why? Give a reason, which others will read: fairlead cordon {device} --reason TEXT")
    request = {"ask": "cordon", "device": device, "reason": reason, "for_s": _seconds(lasting)}
    print_answer(ask_daemon(socket, request), as_json, str)


@click.command()
@click.argument("device")
@socket_option
@json_option
def uncordon(device: str, socket: str | None, as_json: bool) -> None:
    """Offer a cordoned device again, if its health allows it."""
    print_answer(ask_daemon(socket, {"ask": "uncordon", "device": device}), as_json, str)


def _list(socket: str | None, *, as_json: bool) -> None:
    from fairlead.cli import show  # noqa: PLC0415 - only this
    from fairlead.kit.clock import SystemClock  # noqa: PLC0415 - as above
    from fairlead.observe.status import CordonStatus  # noqa: PLC0415 - as above

    now_s = SystemClock().now()
    answer = ask_daemon(socket, {"ask": "cordons"})
    print_answer(answer, as_json, lambda rows: show.cordons(rows, now_s), list[CordonStatus])


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    from fairlead.kit.decoding import Seconds  # noqa: PLC0415 - only this

    try:
        return float(Seconds.parse(text))
    except ValueError as error:
        raise UsageError(f"--for {text!r:.80}: {error}") from None

"""What commands have in common: options, the configuration that they read, and how an answer is printed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from fairlead.config.settings import CONFIG_ENV, SETTINGS, config_path, overrides
from fairlead.kit.text import each_text, encodable, printable, show_json
from fairlead.model.errors import UsageError

if TYPE_CHECKING:
    from fairlead.config.load import Loaded
    from fairlead.model.inventory import Inventory

F = TypeVar("F", bound=Callable[..., Any])

json_option = click.option("--json", "as_json", is_flag=True, help="The answer as JSON.")
socket_option = click.option(
    "--status-socket",
    "--socket",
    "socket",
    metavar="PATH",
    help="The daemon's own socket, or a directory of such. Default: /run/fairlead. [FAIRLEAD_STATUS_SOCKET]",
)


def settings(function: F) -> F:
    """Adds --config and the common settings."""
    for setting in reversed(SETTINGS):
        alone: dict[str, Any] = {"is_flag": False, "flag_value": "true"} if setting.switch else {}
        function = click.option(setting.flag, help=f"{setting.help} [{setting.env}]", **alone)(function)
    return click.option("--config", "config", metavar="FILE", help=f"Configuration file. [{CONFIG_ENV}]")(function)


def flags(given: Mapping[str, str | None]) -> dict[str, str | None]:
    return {"--" + name.replace("_", "-"): value for name, value in given.items()}


def load_config(config: str | None, given: Mapping[str, str | None]) -> Loaded:
    from fairlead.config.load import load  # noqa: PLC0415 - only commands that read one

    return load(config_path(config), overrides(flags(given)))


def survey_devices(config: str | None, given: Mapping[str, str | None]) -> tuple[Loaded, Inventory, Sequence[str]]:
    """What the backends of a configuration find, and what was wrong with it."""
    from fairlead.app.backends import survey  # noqa: PLC0415 - loads the engine
    from fairlead.kit.clock import SystemClock  # noqa: PLC0415 - as above

    loaded = load_config(config, given)
    return loaded, *asyncio.run(survey(loaded, SystemClock()))


def ask_daemon(socket: str | None, request: Mapping[str, Any]) -> Any:
    from fairlead.cli.daemons import ask_one  # noqa: PLC0415 - only commands that ask

    return ask_one(socket, request)


def print_json(answer: Any) -> None:
    plain = msgspec.to_builtins(answer, enc_hook=str)
    click.echo(show_json(json.dumps(each_text(plain, encodable), indent=2, ensure_ascii=False)))


def print_answer(answer: Any, as_json: bool, draw: Callable[[Any], str], shape: Any = Any) -> None:
    """`answer`: plain data or structs; as JSON with all that it has, drawn as a `shape` that is fit for a terminal."""
    if as_json:
        print_json(answer)
        return
    plain = msgspec.to_builtins(answer, enc_hook=str)
    shown = each_text(plain, printable)
    if shape is not Any:
        from fairlead.observe.status import decode  # noqa: PLC0415 - loads what rules are made of

        shown = decode(shown, shape)
    click.echo(draw(shown))


def read_time(flag: str, text: str, now_s: float) -> float:
    """A duration before now, or a time; without a zone, as the journal shows it."""
    from datetime import UTC, datetime  # noqa: PLC0415 - only this

    from fairlead.kit.decoding import Seconds  # noqa: PLC0415 - as above

    try:
        return now_s - Seconds.parse(text)
    except ValueError:
        pass
    try:
        at = datetime.fromisoformat(text)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise UsageError(f"{flag} {text!r:.80} is no time. Give one such as 30m, 2h or 2026-11-17T14:00") from None

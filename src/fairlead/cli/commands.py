"""The commands that people type. Each asks a room below and draws the answer; `--json` gives the answer itself."""

from __future__ import annotations

import asyncio
import json
import platform
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import click

from fairlead._version import __version__
from fairlead.cli import dialects
from fairlead.cli.explained import Explained
from fairlead.cli.node import node
from fairlead.cli.say import say
from fairlead.config.settings import CONFIG_ENV, SETTINGS, config_path, overrides
from fairlead.model.errors import UsageError
from fairlead.model.text import each_text, encodable, printable, show_json

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


@click.group(
    cls=Explained,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done, 1 problems found, 2 bad input, 3 the host refuses, 4 a backend fails, 5 no daemon, "
    "6 the cluster refuses or is away.",
)
@click.version_option(__version__, "--version", prog_name="fairlead")
def cli() -> None:
    """Leads devices into Kubernetes pods."""


cli.add_command(node)
for dialect in dialects.commands():
    cli.add_command(dialect)


def settings(function: F) -> F:
    """Adds --config and the common settings."""
    for setting in reversed(SETTINGS):
        function = click.option(setting.flag, help=f"{setting.help} [{setting.env}]")(function)
    return _config_option(function)


def _config_option(function: F) -> F:
    return click.option("--config", "config", metavar="FILE", help=f"Configuration file. [{CONFIG_ENV}]")(function)


json_option = click.option("--json", "as_json", is_flag=True, help="The answer as JSON.")


def _flags(given: dict[str, str | None]) -> dict[str, str | None]:
    return {"--" + name.replace("_", "-"): value for name, value in given.items()}


def _load(config: str | None, given: dict[str, str | None] | None = None) -> Any:
    from fairlead.config.load import load  # noqa: PLC0415 - only commands that read one

    return load(config_path(config), overrides(_flags(given or {})))


def _print(answer: Any, as_json: bool, draw: Callable[[Any], str]) -> None:
    if as_json:
        click.echo(show_json(json.dumps(each_text(answer, encodable), indent=2, ensure_ascii=False)))
    else:
        click.echo(draw(each_text(answer, printable)))


def _wait(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


# --- The daemon -------------------------------------------------------------------------------------------------------


@cli.command()
@settings
def run(config: str | None, **given: str | None) -> None:
    """Run the daemon on this node."""
    from fairlead.cli.run import run as run_daemon  # noqa: PLC0415 - loads the engine

    sys.exit(run_daemon({"--config": config, **_flags(given)}))


@cli.command()
@click.option("--fleet", default="h100x8", show_default=True, help="Simulated node: a name, or a YAML file.")
@click.option("--once", is_flag=True, help="Play the story once and leave, even on a terminal.")
@click.option("--keep", is_flag=True, help="Keep the demo's directory and say where it is.")
def demo(fleet: str, once: bool, keep: bool) -> None:
    """Watch a simulated GPU node: pods come and go, a GPU fails and returns, the kubelet restarts."""
    from fairlead.cli.demo import play  # noqa: PLC0415 - needs the stand-in

    sys.exit(play(fleet, once=once, keep=keep))


@cli.command(context_settings={"ignore_unknown_options": True})
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option("--resource", metavar="NAME", help="The resource to look at. Default: the first that registers.")
@click.option("--only", default="", metavar="IDS", help="Only these scenarios, such as C07,C12 or C41-C58.")
@click.option("--list", "listing", is_flag=True, help="List the scenarios, and play none.")
@click.option("--timeout", default=10.0, show_default=True, help="Seconds that the plugin gets to do something.")
@click.option("--private-mount", is_flag=True, help="As root: mount over the path that some plugins hard-code.")
@click.option("--delay", default=1.1, show_default=True, help="Seconds from one start of the plugin to the next.")
@click.option("--break", "breaks", default="", metavar="COMMAND", help="A shell command that breaks a device.")
@click.option("--mend", "mends", default="", metavar="COMMAND", help="A shell command that mends it again.")
@click.option("--repeat", default=1, show_default=True, help="Play everything so many times.")
@click.option("--log", metavar="FILE", help="Write what the plugin prints to a file, with what was done to it.")
@click.option("--explain", metavar="ID", help="Explain one scenario: its rule, its reason, and what a kubelet does.")
@json_option
def conformance(
    command: tuple[str, ...],
    only: str,
    listing: bool,
    explain: str | None,
    as_json: bool,
    **how: Any,
) -> None:
    """Put a device plugin, in any language, through the scenarios of a faithful kubelet.

    The command is started in the directory you are in. `{dir}` in it stands for the directory with kubelet.sock; the
    same is in DP_DIR, PLUGIN_SOCK_DIR and some other variables.

    \b
      fairlead conformance -- ./your-plugin --plugin-dir {dir}
    """  # noqa: D301 - click reads this backspace as "keep the lines"
    from fairlead.cli.conformance import Wishes, judge, show_list, show_one  # noqa: PLC0415 - needs the stand-in

    if explain:
        sys.exit(show_one(explain, as_json=as_json))
    if listing:
        sys.exit(show_list(only, as_json=as_json))
    sys.exit(judge(command, Wishes(**how), only=only, as_json=as_json))


# --- Before anything runs ---------------------------------------------------------------------------------------------


@cli.command()
@settings
@json_option
def validate(config: str | None, as_json: bool, **given: str | None) -> None:
    """Check a configuration; name every fault."""
    from fairlead.app.opening import open_backends  # noqa: PLC0415 - loads backends
    from fairlead.model.clock import SystemClock  # noqa: PLC0415 - as above

    loaded = _load(config, given)
    backends = open_backends(loaded, SystemClock())
    answer = {"source": loaded.source, "rules": len(loaded.rules), "backends": list(backends)}
    _print(
        answer,
        as_json,
        lambda it: f"{it['source']}: good. {it['rules']} rules, backends: {', '.join(it['backends'])}",
    )


@cli.command()
@settings
@json_option
def plan(config: str | None, as_json: bool, **given: str | None) -> None:
    """Show what would be advertised on this node, and which rule each device hits."""
    from fairlead.app import report  # noqa: PLC0415 - loads the engine
    from fairlead.app.foresight import foresee  # noqa: PLC0415 - as above
    from fairlead.cli import show  # noqa: PLC0415 - as above

    loaded, inventory, problems = _survey(config, given)
    answer = report.plan(inventory, _wait(foresee(loaded, inventory)), problems, loaded.amounts)
    _print(answer, as_json, show.plan)
    if answer["problems"]:
        sys.exit(1)


@cli.command()
@settings
@json_option
def devices(config: str | None, as_json: bool, **given: str | None) -> None:
    """List the devices that the configured backends find."""
    from fairlead.app import report  # noqa: PLC0415 - loads the engine
    from fairlead.cli import show  # noqa: PLC0415 - as above

    _, inventory, problems = _survey(config, given)
    _print([report.device_facts(device) for device in inventory.devices], as_json, show.devices)
    for problem in problems:
        say(problem)
    if problems:
        sys.exit(4)


def _survey(config: str | None, given: dict[str, str | None]) -> Any:
    from fairlead.app.opening import survey  # noqa: PLC0415 - loads the engine
    from fairlead.model.clock import SystemClock  # noqa: PLC0415 - as above

    loaded = _load(config, given)
    inventory, problems = _wait(survey(loaded, SystemClock()))
    return loaded, inventory, problems


# --- With a daemon ----------------------------------------------------------------------------------------------------

socket_option = click.option(
    "--status-socket",
    "--socket",
    "socket",
    metavar="PATH",
    help="The daemon's own socket, or a directory of such. Default: /run/fairlead. [FAIRLEAD_STATUS_SOCKET]",
)


def _ask(socket: str | None, request: dict[str, Any]) -> Any:
    from fairlead.cli.daemons import ask_one  # noqa: PLC0415 - only commands that ask

    return ask_one(socket, request)


@cli.command()
@socket_option
@json_option
@click.option("--check", is_flag=True, help="Exit with 1 unless everything is registered and healthy.")
def status(socket: str | None, as_json: bool, check: bool) -> None:
    """Show the daemons that run here: devices, health, holders, registration. Exits with 5 when none answers."""
    from fairlead.cli import show  # noqa: PLC0415 - only this
    from fairlead.cli.daemons import ask_all  # noqa: PLC0415 - as above

    told, silent = ask_all(socket, {"ask": "status"})
    for error in silent if told else ():
        click.echo(f"fairlead: {error}", err=True)
    if not told:
        raise silent[0]
    answers = [each.answer for each in told]
    _print(answers if len(answers) > 1 else answers[0], as_json, lambda _: "\n\n".join(map(show.status, answers)))
    if check and not all(map(show.is_well, answers)):
        sys.exit(1)


@cli.command()
@click.argument("resource")
@click.option("-n", "--count", default=1, show_default=True, help="How many slots a container asks for.")
@click.option("--config", "config", metavar="FILE", help="Explain on the inventory of a configuration, not a daemon.")
@socket_option
@json_option
def explain(resource: str, count: int, config: str | None, socket: str | None, as_json: bool) -> None:
    """Tell which slots a request would get, with scores, and why not the others."""
    from fairlead.app import report  # noqa: PLC0415 - loads the engine
    from fairlead.cli import show  # noqa: PLC0415 - as above
    from fairlead.policy.rules import assign  # noqa: PLC0415 - as above

    if config is None:
        answer = _ask(socket, {"ask": "explain", "resource": resource, "count": count})
    else:
        loaded, inventory, _ = _survey(config, {})
        found = report.pick_resource(assign(inventory, loaded.rules).resources, resource)
        answer = report.explain(found, count)
    _print(answer, as_json, show.explanation)


@cli.command()
@click.argument("device")
@click.option("--code", help="Only this cause, such as xid-79. Default: every cause.")
@socket_option
@json_option
def clear(device: str, code: str | None, socket: str | None, as_json: bool) -> None:
    """Tell a daemon that a device's fault is over."""
    _print(_ask(socket, {"ask": "clear", "device": device, "code": code}), as_json, str)


@cli.command()
@click.option("-n", "--count", default=50, show_default=True, help="How many facts.")
@socket_option
@json_option
def journal(count: int, socket: str | None, as_json: bool) -> None:
    """Show what a daemon did lately."""
    from fairlead.observe.journal import Fact, text_line  # noqa: PLC0415 - only this

    facts = _ask(socket, {"ask": "journal", "count": count})

    def line(fact: dict[str, Any]) -> str:
        keys = {key: value for key, value in fact.items() if key not in {"seq", "at_s", "event"}}
        return text_line(Fact(fact["seq"], fact["at_s"], fact["event"], keys))

    _print(facts, as_json, lambda rows: "\n".join(map(line, rows)))


@cli.command()
@click.argument("order")
@click.argument("device", default="")
@click.argument("details", nargs=-1, metavar="[KEY=VALUE]...")
@socket_option
@json_option
def sim(order: str, device: str, details: tuple[str, ...], socket: str | None, as_json: bool) -> None:
    """Order something to happen to a simulated device.

    Orders: fail, flap, clear, recover, unplug, plug, slow, hang, scan-error, scan-slow.
    A device is named by id, index or the beginning of an id:

    \b
      fairlead sim fail 3 xid=79
      fairlead sim slow 2 takes=10s
      fairlead sim recover 2
    """  # noqa: D301 - click reads this backspace as "keep the lines"
    words = [*([device] if "=" in device else []), *details]
    request: dict[str, Any] = {"ask": "steer", "do": order}
    if device and "=" not in device:
        request["device"] = device
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise UsageError(f"{word!r} is not of the form key=value, such as xid=79")
        request[key] = value
    _print(_ask(socket, request), as_json, str)


# --- About itself -----------------------------------------------------------------------------------------------------


@cli.group()
def config() -> None:
    """The configuration: its schema, its effect, its keys."""


@config.command("schema")
def config_schema() -> None:
    """Print the JSON Schema of the configuration file."""
    from fairlead.config.load import schema  # noqa: PLC0415 - only this

    click.echo(json.dumps(schema(), indent=2))


@config.command("show")
@settings
@json_option
@click.option("--example", is_flag=True, help="Print a small example instead.")
def config_show(config: str | None, as_json: bool, example: bool, **given: str | None) -> None:
    """Print the configuration in force: file, environment and flags together, with all defaults."""
    from fairlead.config.reference import EXAMPLE, effective  # noqa: PLC0415 - only this

    if example:
        click.echo(EXAMPLE.rstrip())
        return
    loaded = _load(config, given)
    _print(effective(loaded.config), as_json, _yaml)


@config.command("explain")
@click.argument("key", default="")
@json_option
def config_explain(key: str, as_json: bool) -> None:
    """Tell what a key means: `fairlead config explain rules.match.memory`."""
    from fairlead.config import reference  # noqa: PLC0415 - only this

    found = [reference.describe(known) for known in reference.find_keys(key)]
    _print(found, as_json, lambda _: reference.explain_key(key))


def _yaml(data: Any) -> str:
    import yaml  # noqa: PLC0415 - slow to load

    return str(yaml.safe_dump(data, sort_keys=False)).rstrip()


@cli.command()
@json_option
def version(as_json: bool) -> None:
    """Print versions."""
    answer = {"fairlead": __version__, "python": platform.python_version(), "api": "v1beta1"}
    _print(answer, as_json, lambda it: "  ".join(f"{name} {value}" for name, value in it.items()))


@cli.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of a shell: `fairlead completion bash >> ~/.bashrc`."""
    from click.shell_completion import get_completion_class  # noqa: PLC0415 - only this

    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(cli, {}, "fairlead", "_FAIRLEAD_COMPLETE").source())

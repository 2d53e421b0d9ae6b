"""The commands that people type. Each asks a room below and draws the answer; `--json` gives the answer itself."""

from __future__ import annotations

import asyncio
import platform
import sys
from pathlib import Path
from typing import Any

import click
from msgspec import to_builtins

from fairlead._version import __version__
from fairlead.cli import dialects
from fairlead.cli.audit import audit
from fairlead.cli.config import config as config_group
from fairlead.cli.cordon import cordon, uncordon
from fairlead.cli.doctor import doctor
from fairlead.cli.explained import Explained
from fairlead.cli.install_host import install_host
from fairlead.cli.journal import journal
from fairlead.cli.manifest import manifest
from fairlead.cli.node import node
from fairlead.cli.options import (
    ask_daemon,
    flags,
    json_option,
    load_config,
    print_answer,
    settings,
    socket_option,
    survey_devices,
)
from fairlead.cli.packing import inspect, simulate, why
from fairlead.cli.replay import explain_past, replay
from fairlead.cli.run import WEB
from fairlead.cli.say import say
from fairlead.cli.scheduler import scheduler
from fairlead.config.settings import CHOICE_ENV, LABEL_ENV
from fairlead.model.errors import UsageError


@click.group(
    cls=Explained,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done, 1 problems found, 2 bad input, 3 the host refuses, 4 a backend fails, 5 no daemon, "
    "6 the cluster refuses or is away.",
)
@click.version_option(__version__, "--version", prog_name="fairlead")
def cli() -> None:
    """Leads devices into Kubernetes pods."""


cli.add_command(config_group)
cli.add_command(doctor)
cli.add_command(install_host)
cli.add_command(manifest)
cli.add_command(node)
cli.add_command(scheduler)
for packed in (inspect, simulate, why):
    cli.add_command(packed)
for care in (audit, cordon, journal, replay, uncordon):
    cli.add_command(care)
for dialect in dialects.commands():
    cli.add_command(dialect)


# --- The daemon -------------------------------------------------------------------------------------------------------


@cli.command()
@settings
@click.option("--web", is_flag=True, help=f"Serve the page, probes and metrics on {WEB}.")
@click.option(
    "--config-label",
    metavar="LABEL",
    help=f"The node's label that names the configuration; --config is the directory of them then. [{LABEL_ENV}]",
)
@click.option(
    "--config-default", metavar="NAME", help=f"With --config-label: for a node without the label. [{CHOICE_ENV}]"
)
def run(config: str | None, web: bool, **given: str | None) -> None:
    """Run the daemon on this node."""
    from fairlead.cli.run import run as run_daemon  # noqa: PLC0415 - loads the engine

    chosen = flags(given)
    if web and chosen["--http"] is None:
        chosen["--http"] = WEB
    sys.exit(run_daemon({"--config": config, **chosen}))


@cli.command()
@click.option("--fleet", default="h100x8", show_default=True, help="Simulated node: a name, or a YAML file.")
@click.option("--once", is_flag=True, help="Play the story once and leave, even on a terminal.")
@click.option("--keep", is_flag=True, help="Keep the demo's directory and say where it is.")
@click.option("--record", default="", metavar="FILE", help="Record what the daemon does, for fairlead replay.")
def demo(fleet: str, once: bool, keep: bool, record: str) -> None:
    """Watch a simulated GPU node. Pods come and go, a GPU fails and returns, the kubelet restarts."""
    from fairlead.cli.demo import play  # noqa: PLC0415 - needs the stand-in

    sys.exit(play(fleet, once=once, keep=keep, record=record))


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
    """Test a device plugin, in any language, as a kubelet would.

    The command is started in the directory you are in. `{dir}` in it stands for the directory with kubelet.sock; the
    same is in DP_DIR, PLUGIN_SOCK_DIR and some other variables.

    \b
      fairlead conformance -- ./your-plugin --plugin-dir {dir}
    """  # noqa: D301 - click reads this backspace as "keep the lines"
    from fairlead.cli.conformance import RunOptions, judge, show_list, show_one  # noqa: PLC0415 - needs the stand-in

    if explain:
        sys.exit(show_one(explain, as_json=as_json))
    if listing:
        sys.exit(show_list(only, as_json=as_json))
    sys.exit(judge(command, RunOptions(**how), only=only, as_json=as_json))


# --- Before anything runs ---------------------------------------------------------------------------------------------


@cli.command()
@settings
@json_option
def validate(config: str | None, as_json: bool, **given: str | None) -> None:
    """Check a configuration, and name every fault."""
    from fairlead.app.backends import open_backends  # noqa: PLC0415 - loads backends
    from fairlead.kit.clock import SystemClock  # noqa: PLC0415 - as above

    loaded = load_config(config, given)
    backends = open_backends(loaded, SystemClock())
    answer = {"source": loaded.source, "rules": len(loaded.rules), "backends": list(backends)}
    print_answer(
        answer,
        as_json,
        lambda it: f"{it['source']}: good. {it['rules']} rules, backends: {', '.join(it['backends'])}",
    )


@cli.command()
@settings
@json_option
def plan(config: str | None, as_json: bool, **given: str | None) -> None:
    """Show what would be offered on this node, and why.

    Exits with 1 when nothing would be offered, or something would not work.
    """
    from fairlead.app.preview import preview, preview_holding  # noqa: PLC0415 - loads the engine
    from fairlead.cli import show  # noqa: PLC0415 - as above
    from fairlead.observe.plan import Plan, make_plan  # noqa: PLC0415 - as above

    loaded, inventory, problems = survey_devices(config, given)
    offering = asyncio.run(preview(loaded, inventory))
    holding = asyncio.run(preview_holding(loaded, offering))
    answer = make_plan(inventory, offering, problems, loaded.amounts, holding)
    print_answer(answer, as_json, show.plan, Plan)
    if not answer.good:
        sys.exit(1)


@cli.command()
@settings
@json_option
def devices(config: str | None, as_json: bool, **given: str | None) -> None:
    """List the devices that the configured backends find."""
    from fairlead.cli import show  # noqa: PLC0415 - loads the engine
    from fairlead.observe.status import DeviceFacts, device_facts  # noqa: PLC0415 - as above

    _, inventory, problems = survey_devices(config, given)
    print_answer([device_facts(device) for device in inventory.devices], as_json, show.devices, list[DeviceFacts])
    for problem in problems:
        say(problem)
    if problems:
        sys.exit(4)


# --- With a daemon ----------------------------------------------------------------------------------------------------


@cli.command()
@socket_option
@json_option
@click.option("--check", is_flag=True, help="Exit with 1 unless everything is registered and healthy.")
def status(socket: str | None, as_json: bool, check: bool) -> None:
    """Show the daemons of this node. Devices, health, holders, registration; exits with 5 when none answers."""
    from fairlead.cli import show  # noqa: PLC0415 - only this
    from fairlead.cli.daemons import ask_all  # noqa: PLC0415 - as above
    from fairlead.observe.status import Status, decode  # noqa: PLC0415 - as above

    found, silent = ask_all(socket, {"ask": "status"})
    for error in silent if found else ():
        say(error)
    if not found:
        raise silent[0]
    answers = [each.answer for each in found]
    if len(answers) == 1:
        print_answer(answers[0], as_json, show.status, Status)
    else:
        print_answer(answers, as_json, lambda each: "\n\n".join(map(show.status, each)), list[Status])
    if check and not all(status.healthy for status in decode(answers, list[Status])):
        sys.exit(1)


@cli.command()
@click.argument("resource", required=False)
@click.option("-n", "--count", default=1, show_default=True, help="How many slots a container asks for.")
@click.option("--config", "config", metavar="FILE", help="Explain on the inventory of a configuration, not a daemon.")
@click.option("--recording", metavar="FILE", type=click.Path(path_type=Path), help="Explain decisions of the past.")
@click.option("--at", metavar="TIME", help="With --recording: those within a second of it, such as 2h ago.")
@click.option("--pod", metavar="NAME", help="With --recording: those for this pod, with or without namespace.")
@click.option("--slot", metavar="ID", help="With --recording: those that gave this slot, by the beginning of its id.")
@socket_option
@json_option
def explain(
    resource: str | None,
    count: int,
    config: str | None,
    recording: Path | None,
    at: str | None,
    pod: str | None,
    slot: str | None,
    socket: str | None,
    as_json: bool,
) -> None:
    """Explain which slots a request would get, and why not others. With --recording: which it got."""
    if recording is not None:
        explain_past(recording, at, pod, slot, as_json)
        return
    if at or pod or slot:
        raise UsageError("--at, --pod and --slot are of a recording. Give one with --recording FILE")
    if resource is None:
        raise UsageError("name a resource, such as nvidia.com/gpu; or a recording, with --recording FILE")
    from fairlead.cli import show  # noqa: PLC0415 - loads the engine
    from fairlead.model.holdings import Holdings  # noqa: PLC0415 - as above
    from fairlead.model.inventory import ALL_HEALTHY  # noqa: PLC0415 - as above
    from fairlead.observe.explanation import Explanation, pick_resource  # noqa: PLC0415 - as above
    from fairlead.observe.explanation import explain as explain_choice  # noqa: PLC0415 - as above
    from fairlead.policy.offering.rules import make_offering  # noqa: PLC0415 - as above

    if config is None:
        answer = ask_daemon(socket, {"ask": "explain", "resource": resource, "count": count})
    else:
        loaded, inventory, _ = survey_devices(config, {})
        found = pick_resource(make_offering(inventory, loaded.rules).resources, resource)
        answer = to_builtins(explain_choice(found, ALL_HEALTHY, count, Holdings()))
    print_answer(answer, as_json, show.explanation, Explanation)
    if not answer["slots"]:  # it would be refused
        sys.exit(1)


@cli.command()
@click.argument("device")
@click.option("--code", help="Only this cause, such as xid-79. Default: every cause.")
@socket_option
@json_option
def clear(device: str, code: str | None, socket: str | None, as_json: bool) -> None:
    """Clear the fault of a repaired device."""
    print_answer(ask_daemon(socket, {"ask": "clear", "device": device, "code": code}), as_json, str)


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
    texts = [*([device] if "=" in device else []), *details]
    request: dict[str, Any] = {"ask": "steer", "do": order}
    if device and "=" not in device:
        request["device"] = device
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"{text!r} is not of the form key=value, such as xid=79")
        request[key] = value
    print_answer(ask_daemon(socket, request), as_json, str)


# --- About itself -----------------------------------------------------------------------------------------------------


@cli.command()
@json_option
def version(as_json: bool) -> None:
    """Print versions."""
    answer = {"fairlead": __version__, "python": platform.python_version(), "api": "v1beta1"}
    print_answer(answer, as_json, lambda it: "  ".join(f"{name} {value}" for name, value in it.items()))


@cli.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a shell's completion script. `fairlead completion bash >> ~/.bashrc` installs it."""
    from click.shell_completion import get_completion_class  # noqa: PLC0415 - only this

    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(cli, {}, "fairlead", "_FAIRLEAD_COMPLETE").source())

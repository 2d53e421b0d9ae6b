"""`fairlead scheduler`: the extender of kube-scheduler, and the configuration that the scheduler needs for it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from fairlead.config.settings import environment
from fairlead.model.errors import UsageError

if TYPE_CHECKING:
    from fairlead.config.schedulerspec import SchedulerSpec

BINDS_AT_ONCE = 16  # of kube-scheduler, in parallel

config_option = click.option("--config", metavar="FILE", help="Resources, policies and addresses. [FAIRLEAD_SCHEDULER]")


@click.group(invoke_without_command=True)
@config_option
@click.option("--listen", multiple=True, metavar="ADDRESS", help="Host and port, or unix: and a path. [PORT]")
@click.option("--kubeconfig", metavar="FILE", help="How to reach the cluster. [KUBECONFIG]")
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", help="Of the journal.")
@click.pass_context
def scheduler(
    context: click.Context, config: str | None, listen: tuple[str, ...], kubeconfig: str | None, log_format: str
) -> None:
    """Run the scheduler extender.

    It answers filter, prioritize, bind and preempt of kube-scheduler, by single devices.
    """
    if context.invoked_subcommand is not None:
        return
    from fairlead.cluster.access import find_access  # noqa: PLC0415 - help needs none of this
    from fairlead.cluster.client import Client  # noqa: PLC0415 - as above
    from fairlead.kit.clock import SystemClock  # noqa: PLC0415 - as above
    from fairlead.observe.journal import Journal, json_line, text_line, to_stderr  # noqa: PLC0415 - as above
    from fairlead.programs.extender.program import serve  # noqa: PLC0415 - as above

    spec = _spec(config, listen)
    clock, around = SystemClock(), environment()
    journal = Journal(clock, to_stderr(json_line if log_format == "json" else text_line))
    access = find_access(around, clock, kubeconfig=kubeconfig or spec.kubeconfig)
    client = Client(access, clock, idle_kept=BINDS_AT_ONCE)
    try:
        asyncio.run(serve(spec, client, clock, journal.record))
    finally:
        journal.flush()


@scheduler.command("config")
@config_option
@click.option("--url", default="http://127.0.0.1:39999", show_default=True, help="Where the scheduler reaches it.")
@click.option("--name", default="default-scheduler", show_default=True, help="Name of the scheduler's profile.")
def print_config(config: str | None, url: str, name: str) -> None:
    """Print the KubeSchedulerConfiguration for this set-up."""
    click.echo(configuration(_spec(config, ()), url, name), nl=False)


def configuration(spec: SchedulerSpec, url: str, name: str) -> str:
    """As YAML with the reasons in it."""
    from fairlead.kit import documents  # noqa: PLC0415 - loads YAML

    if not url.startswith(("http://", "https://")):
        raise UsageError(f"--url: {url!r} does not begin with http:// or https://")
    extender: dict[str, Any] = {
        "urlPrefix": f"{url.rstrip('/')}/scheduler",
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "bindVerb": "bind",
        "preemptVerb": "preempt",
        "weight": 1,
        "nodeCacheCapable": True,
        "ignorable": False,
        "httpTimeout": "5s",
        "managedResources": [{"name": one.contract.resource, "ignoredByScheduler": False} for one in spec.terms()],
    }
    if url.startswith("https://"):
        extender |= {"enableHTTPS": True, "tlsConfig": {"caFile": "/etc/fairlead/ca.crt"}}
    made = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": name, "percentageOfNodesToScore": 100}],
        "extenders": [extender],
    }
    head = (
        "# percentageOfNodesToScore: by default kube-scheduler asks about a part of the nodes that fit by totals.\n"
        "# If none of those has a device with room, the pod waits although others have.\n"
        "# ignorable: false. Without the extender pods would be bound without a device.\n"
    )
    return head + documents.to_yaml(made)


def read_spec(config: str | None) -> SchedulerSpec:
    from fairlead.config.schedulerspec import SchedulerSpec, load  # noqa: PLC0415 - help needs it not

    path = config or environment().get("FAIRLEAD_SCHEDULER", "")
    return load(path) if path else SchedulerSpec()


def _spec(config: str | None, listen: tuple[str, ...]) -> SchedulerSpec:
    around = environment()
    path = config or around.get("FAIRLEAD_SCHEDULER", "")
    spec = read_spec(config)
    if listen:
        return replace(spec, listen=listen)
    port = around.get("PORT", "")
    if port and not path:
        if not port.isdecimal() or not 0 < int(port) < 2**16:
            raise UsageError(f"PORT is {port!r:.40}, which is no port")
        return replace(spec, listen=(f":{port}",))
    return spec

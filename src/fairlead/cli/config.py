"""`fairlead config`: the schema of the configuration file, what is in force, what a key means."""

from __future__ import annotations

import json
from typing import Any

import click

from fairlead.cli.explained import Listed
from fairlead.cli.options import json_option, load_config, print_answer, settings


@click.group(cls=Listed)
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
    """Print the configuration in force. File, environment and flags together, with all defaults."""
    from fairlead.config.reference import EXAMPLE, effective  # noqa: PLC0415 - only this

    if example:
        click.echo(EXAMPLE.rstrip())
        return
    loaded = load_config(config, given)
    print_answer(effective(loaded.config), as_json, _yaml)


@config.command("explain")
@click.argument("key", default="")
@json_option
def config_explain(key: str, as_json: bool) -> None:
    """Show what a key means: `fairlead config explain rules.match.memory`."""
    from fairlead.config import reference  # noqa: PLC0415 - only this

    found = [reference.describe(known) for known in reference.find_keys(key)]
    print_answer(found, as_json, lambda _: reference.explain_key(key))


def _yaml(data: Any) -> str:
    from fairlead.kit.documents import to_yaml  # noqa: PLC0415 - only these

    return to_yaml(data).rstrip()

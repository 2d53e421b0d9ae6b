"""`fairlead manifest`: the objects of Kubernetes for a configuration or a dialect, on standard output."""

from __future__ import annotations

from collections.abc import Sequence

import click
from msgspec.structs import replace

from fairlead.cli import DIALECTS
from fairlead.cli.say import say
from fairlead.model.errors import ConfigError, FairleadError, UsageError


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@click.option("--dialect", type=click.Choice(sorted(DIALECTS)), help="What runs: the device plugin of this system.")
@click.option("--config", metavar="FILE", help="What runs: this configuration.")
@click.option("--image", metavar="NAME", help="The image, with its tag. Your own: none is published.")
@click.option("--name", metavar="NAME", help="Name of all objects. Default: fairlead.")
@click.option("--namespace", metavar="NAME", help="Their namespace. Default: fairlead.")
def manifest(args: Sequence[str], dialect: str | None, config: str | None, **named: str | None) -> None:
    """Print a manifest for `kubectl apply`.

    It has what the configuration needs and no more: directories of the host, privileges, rights at the API server.
    Behind `--` are arguments of the dialect.

    \b
      fairlead manifest --config fairlead.yaml | kubectl apply -f -
      fairlead manifest --dialect nvidia -- --mig-strategy=mixed
    """  # noqa: D301 - click reads this backspace as "keep the lines"
    from fairlead.kit import documents, files  # noqa: PLC0415 - only this
    from fairlead.programs.manifest.objects import make_objects  # noqa: PLC0415 - as above
    from fairlead.programs.manifest.orders import order_of_config, order_of_dialect  # noqa: PLC0415 - as above

    if (dialect is None) == (config is None):
        raise UsageError("give either --dialect or --config")
    if config is not None and args:
        raise UsageError(f"{args[0]!r}: arguments are for a dialect. A configuration has all it needs")
    if dialect is not None:
        try:
            order = order_of_dialect(dialect, args)
        except FairleadError as error:  # a dialect ends as its system does; here it is bad input like any other
            raise UsageError(f"{dialect}: {error}") from None
    else:
        assert config is not None
        try:
            text = files.read_text(config)
        except OSError as error:
            raise ConfigError(config, [f"cannot be read: {error.strerror or error}"]) from None
        order = order_of_config(text, config)
    order = replace(order, **{key: value for key, value in named.items() if value})
    if not named["image"]:
        say(f"note: {order.image} is an example: no image is published. Build your own, and give its name with --image")
    click.echo("---\n".join(documents.to_yaml(one) for one in make_objects(order)), nl=False)

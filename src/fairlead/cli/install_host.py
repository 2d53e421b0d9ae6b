"""`fairlead install-host`: Fairlead as a service of this host, started before the kubelet. Prints it, or installs it.

Decides what the command line of the service is. What it needs, how the unit looks and how files are placed is in
programs/hostservice.
"""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fairlead.cli import DIALECTS
from fairlead.cli.run import parse
from fairlead.cli.say import say
from fairlead.model.errors import ConfigError, HostError, UsageError

if TYPE_CHECKING:
    from fairlead.config.load import Loaded
    from fairlead.dialects.invocation import Program
    from fairlead.programs.hostservice.place import File, Link, Place

UNITS = "/etc/systemd/system"
SETTINGS = "/etc/fairlead"
LIBRARY = "/usr/local/lib/fairlead"
ARCHIVE = f"{LIBRARY}/fairlead.pyz"
CACHE = "/var/cache/fairlead"
KUBELET = "kubelet.service"
_UNIT = re.compile(r"[A-Za-z0-9:_.\\@-]{1,200}\.service")
ENVIRONMENT = """\
# Variables of {unit}, one NAME=value in a line: FAIRLEAD_* for the settings, NODE_NAME and KUBECONFIG for the cluster,
# and those of the plugin that a dialect takes the place of. The file belongs to you: install-host keeps what you write.
"""


@click.command("install-host")
@click.argument("args", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGS]...")
@click.option("--dialect", metavar="NAME", help=f"Run a dialect: {', '.join(DIALECTS)}. ARGS are its flags.")
@click.option("--config", "config", metavar="FILE", help="The configuration to install, without a dialect.")
@click.option("--kubelet-unit", "kubelets", multiple=True, metavar="UNIT", help="Start before it. [kubelet.service]")
@click.option("--print", "printing", is_flag=True, help="Print the files, and write none.")
@click.option("--root", default="/", metavar="DIR", show_default=True, help="Write below it, such as into an image.")
@click.option("--command", "command", metavar="WORDS", help="What the service runs, instead of this program.")
@click.option("--uninstall", is_flag=True, help="Remove what it wrote.")
@click.option("--force", is_flag=True, help="Also overwrite or remove files that others wrote or edited.")
def install_host(
    args: tuple[str, ...],
    dialect: str | None,
    config: str | None,
    kubelets: tuple[str, ...],
    printing: bool,
    root: str,
    command: str | None,
    uninstall: bool,
    force: bool,
) -> None:
    """Run Fairlead on this host, before the kubelet.

    Writes a systemd unit with a sandbox for what the configuration needs, the configuration and a file for variables.
    Run it again after a change of the configuration.

    \b
      fairlead install-host --config fairlead.yaml
      fairlead install-host --dialect nvidia --print -- --mig-strategy=mixed
    """  # noqa: D301 - click reads this backspace as "keep the lines"
    from fairlead.programs.hostservice.place import Place  # noqa: PLC0415 - only this

    if dialect is not None and dialect not in DIALECTS:
        from fairlead.kit.decoding import did_you_mean  # noqa: PLC0415 - only an error needs it

        raise UsageError(f"no dialect {dialect!r}{did_you_mean(dialect, DIALECTS)}")
    for unit in kubelets:
        if not _UNIT.fullmatch(unit):
            raise UsageError(f"--kubelet-unit: {unit!r} is not the name of a unit, such as {KUBELET}")
    place = Place(Path(root))
    if uninstall:
        _uninstall(place, dialect, force=force)
        return
    wanted = _Wanted(place, dialect, config, args, kubelets or (KUBELET,), command)
    if printing:
        click.echo(wanted.show(), nl=False)
        return
    changed = place.put(wanted.files, (wanted.link,), force=force)
    for path in changed:
        click.echo(f"wrote {place.at(path)}")
    if not changed:
        click.echo(f"{wanted.unit}: nothing has changed")
    elif place.root == Path("/"):
        click.echo(f"Start it: systemctl daemon-reload && systemctl restart {wanted.unit}")


def _uninstall(place: Place, dialect: str | None, *, force: bool) -> None:
    name = _name(dialect)
    others = [one for one in (None, *DIALECTS) if one != dialect and place.at(_unit_path(_name(one))).exists()]
    paths = [_unit_path(name), _config_path(name), _environment_path(name), *([] if others else [ARCHIVE])]
    removed = place.remove(paths, [_link(name)], force=force)
    if not others:
        place.remove_tree(CACHE)
    place.remove_empty(LIBRARY, SETTINGS, f"{UNITS}/multi-user.target.wants")
    for path in removed:
        click.echo(f"removed {place.at(path)}")
    if not removed:
        click.echo(f"{name}.service is not installed here")
    elif place.root == Path("/"):
        click.echo(f"End it: systemctl stop {name}.service && systemctl daemon-reload")


class _Wanted:
    """The files of one service, for these arguments."""

    def __init__(
        self,
        place: Place,
        dialect: str | None,
        config: str | None,
        args: tuple[str, ...],
        kubelets: tuple[str, ...],
        command: str | None,
    ) -> None:
        from fairlead.programs.hostservice.needs import find_needs, in_home  # noqa: PLC0415 - only this
        from fairlead.programs.hostservice.place import File, mark  # noqa: PLC0415 - as above
        from fairlead.programs.hostservice.unit import Service, render  # noqa: PLC0415 - as above

        name = _name(dialect)
        self.unit = f"{name}.service"
        self.files: list[File] = []
        self.link = _link(name)
        if dialect is not None:
            if config is not None:
                raise UsageError(f"--config: `fairlead {dialect}` has flags of its own; give them after --")
            loaded, words = _of_dialect(dialect, args), (dialect, *args)
        else:
            loaded, text = _of_run(place, config, name, args)
            words = ("run", "--config", _config_path(name), *args)
            if config is not None:
                self.files.append(File(_config_path(name), mark(text), 0o644))
        program = tuple(command.split()) if command else _this_program(place)
        one_file = any(word.endswith(".pyz") for word in program)
        if one_file and not command:
            self.files.append(File(ARCHIVE, _archive(), 0o755))
            program = (program[0], "-I", ARCHIVE)
        needs = find_needs(loaded)
        real = [str(Path(word).resolve()) for word in program] if place.root == Path("/") else []
        if hidden := next((word for word in (*program, *real) if in_home(word)), ""):
            raise HostError(
                f"{hidden} is below a home directory, which the service does not see. Use a Python of the system, or "
                "install into /opt; or name what to run with --command"
            )
        for note in needs.notes:
            say(f"note: {note}")
        service = Service(
            name,
            (*program, *words),
            kubelets,
            _environment_path(name),
            f"Fairlead device plugin{f' ({dialect})' if dialect else ''}",
            one_file=one_file,
        )
        self.files.append(File(_unit_path(name), mark(render(service, needs))))
        variables = ENVIRONMENT.format(unit=self.unit)
        self.files.append(File(_environment_path(name), mark(variables), 0o600, editable=True))

    def show(self) -> str:
        """Each file below its path; of the program only the path."""
        shown = [f"### {file.path}\n" + ("" if file.path == ARCHIVE else file.content.decode()) for file in self.files]
        return "\n".join([*shown, f"### {self.link.path} -> {self.link.target}\n"])


def _name(dialect: str | None) -> str:
    return f"fairlead-{dialect}" if dialect else "fairlead"


def _unit_path(name: str) -> str:
    return f"{UNITS}/{name}.service"


def _config_path(name: str) -> str:
    return f"{SETTINGS}/{name}.yaml"


def _environment_path(name: str) -> str:
    return f"{SETTINGS}/{name}.env"


def _link(name: str) -> Link:
    """What `systemctl enable` makes; it cannot be asked where an image is made."""
    from fairlead.programs.hostservice.place import Link  # noqa: PLC0415 - only this

    return Link(f"{UNITS}/multi-user.target.wants/{name}.service", _unit_path(name))


def _of_run(place: Place, config: str | None, name: str, args: tuple[str, ...]) -> tuple[Loaded, str]:
    from fairlead.config.load import parse as parse_config  # noqa: PLC0415 - only this
    from fairlead.config.settings import overrides  # noqa: PLC0415 - as above
    from fairlead.kit import files  # noqa: PLC0415 - as above

    flags = parse(list(args))
    if flags is None:
        raise UsageError(f"{' '.join(args)!r} are no flags of `fairlead run`: see `fairlead run --help`")
    if "--config" in flags:
        raise UsageError("--config comes before the --: install-host copies the file to where the service reads it")
    if config is not None:
        try:
            text = files.read_text(config)
        except OSError as error:
            raise ConfigError(config, [f"cannot be read: {error.strerror or error}"]) from None
        source = config
    else:
        found = place.read(_config_path(name))
        if found is None:
            raise UsageError(
                f"there is no {place.at(_config_path(name))}. Give a configuration with --config FILE, or a --dialect; "
                "`fairlead config show --example` prints a configuration"
            )
        text, source = found, str(place.at(_config_path(name)))
    return parse_config(text, source, overrides(flags, {})), text


def _of_dialect(dialect: str, args: tuple[str, ...]) -> Loaded:
    """By its flags alone: the variables of this shell are not those of the service."""
    from fairlead.config.load import build  # noqa: PLC0415 - only this
    from fairlead.dialects.goflags import BadFlag, masked  # noqa: PLC0415 - as above

    program: Program = import_module(f"fairlead.dialects.{dialect}.command").PROGRAM
    if masked(program.flags, args) != list(args):
        raise UsageError("a unit can be read by every user: put a secret into the environment file, not into a flag")
    try:
        invocation = program.read(args, {})
    except BadFlag as error:
        raise UsageError(f"fairlead {dialect}: {error}") from None
    translation = invocation.translate()
    for note in translation.notes:
        say(f"note: {note}")
    return build(dict(translation.config), invocation.source)


def _this_program(place: Place) -> tuple[str, ...]:
    """How to start this very program without the variables of this shell."""
    if sys.argv[0].endswith(".pyz"):
        return (sys.executable, "-I", sys.argv[0])
    words = (sys.executable, "-I", "-m", "fairlead")
    if place.root == Path("/"):
        found = subprocess.run([sys.executable, "-I", "-c", "import fairlead"], capture_output=True, check=False)
        if found.returncode != 0:
            raise HostError(
                f"{sys.executable} finds fairlead by PYTHONPATH or in your home only, and a service has neither. "
                "Install it into a virtual environment below /opt, use fairlead.pyz, or name what to run with --command"
            )
    return words


def _archive() -> bytes:
    from fairlead.kit import files  # noqa: PLC0415 - only this
    from fairlead.programs.hostservice.place import ARCHIVE_END, ARCHIVE_MAX  # noqa: PLC0415 - as above

    try:
        content = files.read_bytes(sys.argv[0], ARCHIVE_MAX)
    except OSError as error:
        raise HostError(f"{sys.argv[0]}: {error.strerror or error}") from error
    if not content.endswith(ARCHIVE_END):
        raise HostError(f"{sys.argv[0]} is no Fairlead file that `python -m deploy.onefile` built")
    return content

"""Writes docs/reference from the code: `python -m docs.generate`.

Owns the shape of these pages. What they say is in the structs of the configuration and in the commands.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from docs import conformance, doctor, metrics, numbers
from fairlead.backends.amd import spec as amd
from fairlead.backends.nvidia import spec as nvidia
from fairlead.backends.paths import spec as paths
from fairlead.cli import gpushare_inspect
from fairlead.cli.commands import cli
from fairlead.cluster.rbac import FEATURES, INSTEAD, as_yaml
from fairlead.config.load import schema
from fairlead.config.reference import EXAMPLE, Key, keys
from fairlead.config.schedulerspec import SchedulerSpec
from fairlead.config.settings import CONFIG_ENV, DEFAULT_CONFIG, SETTINGS
from fairlead.dialects.amd import command as amd_dialect
from fairlead.dialects.doslab import command as doslab
from fairlead.dialects.generic import command as generic
from fairlead.dialects.gke import flags as gke
from fairlead.dialects.goflags import Flag
from fairlead.dialects.gpushare import command as gpushare
from fairlead.dialects.invocation import GLOG
from fairlead.dialects.nvidia import flags as nvidia_flags
from fairlead.dialects.smarter import command as smarter
from fairlead.dialects.volcano import command as volcano
from fairlead.programs import configmanager as config_manager
from fairlead.programs.labels.amd import command as amd_labels

COMMAND = "python -m docs.generate"
REFERENCE = Path(__file__).with_name("reference")
MADE = f"<!-- Made by `{COMMAND}`. Change the code, not this page. -->"


def pages() -> Mapping[str, str]:
    """Every generated file of the reference, by name."""
    return {
        "configuration.md": _page(_configuration()),
        "amd-options.md": _page(_amd_options()),
        "nvidia-options.md": _page(_nvidia_options()),
        "paths-options.md": _page(_paths_options()),
        "scheduler.md": _page(_scheduler()),
        "commands.md": _page(_commands()),
        "nvidia.md": _page(_nvidia()),
        "amd.md": _page(_dialect("amd", "AMD's GPU device plugin", amd_dialect.FLAGS, amd_dialect.OWN)),
        "doslab.md": _page(_dialect("doslab", "kube-device-plugin-mini", doslab.FLAGS, doslab.OWN)),
        "generic.md": _page(_dialect("generic", "squat's generic-device-plugin", generic.FLAGS, generic.OWN)),
        "gke.md": _page(_dialect("gke", "Google's device plugin", (*gke.FLAGS, *GLOG), gke.OWN)),
        "gpushare.md": _page(_gpushare()),
        "smarter.md": _page(_dialect("smarter", "smarter-device-manager", smarter.FLAGS, smarter.OWN)),
        "volcano.md": _page(_dialect("volcano", "Volcano's device plugin", volcano.FLAGS, volcano.OWN)),
        "metrics.md": _page(_metrics()),
        "numbers.md": _page(_numbers()),
        "amd-labels.md": _page(_dialect("amd labels", "AMD's node labeller", amd_labels.FLAGS, amd_labels.OWN)),
        "chart.md": _page(_chart()),
        "rbac.md": _page(_rbac()),
        "conformance.md": _page(conformance.rules()),
        "conformance-cards.md": _page(conformance.cards()),
        "doctor.md": _page(doctor.page()),
        "fairlead.schema.json": json.dumps(schema(), indent=2) + "\n",
    }


def _metrics() -> Iterator[str]:
    yield "# Metrics"
    yield "What `/metrics` serves. [Guide](../guide/metrics.md)"
    yield _table(("name", "type", ""), metrics.rows())
    yield "## The scheduler extender"
    yield "What `/metrics` of `fairlead scheduler` serves. [Guide](../guide/scheduler.md#watch-it)"
    yield _table(("name", "type", ""), metrics.scheduler_rows())


def _numbers() -> Iterator[str]:
    yield "# Numbers"
    yield f"{numbers.summary()} [What they mean](../guide/performance.md)"
    yield _table(("measure", "Fairlead", "NVIDIA", "ratio", "target"), numbers.rows())
    yield f"`{numbers.command(numbers.RUN)}` made them."
    yield "## Without another plugin"
    yield numbers.summary_alone()
    for title, rows in numbers.alone():
        yield f"### {title}"
        yield _table(("measure", "Fairlead", "target"), rows)
    yield f"`{numbers.command(numbers.ALONE)}` made them."


def _nvidia() -> Iterator[str]:
    yield "# The flags of `fairlead nvidia`"
    yield "Those of NVIDIA's programs, with their variables and keys of the config file. [Guide](../guide/nvidia.md)"
    yield from _flags(
        {
            "fairlead nvidia": nvidia_flags.FLAGS,
            "Of our own": nvidia_flags.OWN,
            "fairlead nvidia labels": (*nvidia_flags.LABEL_FLAGS, *nvidia_flags.LABEL_OWN),
            "fairlead nvidia config-manager": config_manager.FLAGS,
        }
    )


def _dialect(word: str, whose: str, flags: Sequence[Flag], own: Sequence[Flag]) -> Iterator[str]:
    yield f"# The flags of `fairlead {word}`"
    yield f"Those of {whose}, and ours. [Guide](../guide/{word.replace(' ', '-')}.md)"
    yield from _flags({f"fairlead {word}": flags, "Of our own": own})


def _gpushare() -> Iterator[str]:
    yield from _dialect("gpushare", "Aliyun's gpushare device plugin", gpushare.FLAGS, gpushare.OWN)
    yield from _flags({"fairlead gpushare inspect": gpushare_inspect.FLAGS})


def _flags(parts: Mapping[str, Sequence[Flag]]) -> Iterator[str]:
    for title, flags in parts.items():
        yield f"## {title}"
        rows = (
            (
                ", ".join(f"`--{name}`" for name in (flag.name, *flag.aliases)),
                ", ".join(map(_code, flag.env)),
                _code(flag.key),
                _code(_default(flag.default)),
                flag.help,
            )
            for flag in flags
        )
        yield _table(("flag", "variable", "key in the config file", "default", ""), rows)


def _default(value: object) -> str:
    if value is None or value in ("", ()):
        return ""
    return (
        ",".join(map(str, value))
        if isinstance(value, tuple)
        else str(value).lower()
        if isinstance(value, bool)
        else str(value)
    )


def stale() -> list[str]:
    """The files that differ from what the code says now."""
    return [name for name, text in pages().items() if _read(REFERENCE / name) != text]


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _page(parts: Iterable[str]) -> str:
    return "\n\n".join([MADE, *parts]) + "\n"


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [list(head)]
    lines += [["---"] * len(lines[0])]
    lines += [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


# --- Configuration ----------------------------------------------------------------------------------------------------


def _configuration() -> Iterator[str]:
    known = keys()
    parents = _parents(known)
    yield "# Configuration"
    yield (
        "One YAML file. Unknown keys, wrong types and contradictions are refused, all at once, each with its line. "
        "`fairlead config explain KEY` prints the same text; "
        "[fairlead.schema.json](fairlead.schema.json) is the same as a JSON Schema, for editors."
    )
    yield f"```yaml\n{EXAMPLE}```"
    yield "## Top level"
    yield _keys(key for key in known if "." not in key.path)
    yield (
        "The keys of an entry of `backends` belong to the backend, except for two. `kind` names the backend: "
        "[sim](../guide/simulated-hardware.md), [paths](paths-options.md), [nvidia](nvidia-options.md), "
        "[amd](amd-options.md), "
        "or one of another package. "
        "`name` is what `match.backend` looks at; it defaults to the kind."
    )
    for parent in parents:
        yield f"## {parent}"
        yield _keys(key for key in known if _parent(key) == parent)
    yield "## Durations, sizes and patterns"
    yield (
        "A duration is a number of seconds, or text such as `250ms`, `5s`, `1m`, `2h`. "
        "A size is a number of bytes, or text such as `80GiB` or `24GB`. "
        "A pattern is a shell glob: `*`, `?`, `[ab]`."
    )
    yield "## Flags and environment"
    yield (
        "The common settings can also be given as flags or in the environment. "
        "A flag wins over the environment, and both win over the file. An empty variable counts as not set."
    )
    yield _table(
        ("flag", "environment", "key", "meaning"),
        [
            (_code("--config"), _code(CONFIG_ENV), "", f"The configuration file. Default: `{DEFAULT_CONFIG}`."),
            *((_code(one.flag), _code(one.env), _code(".".join(one.path)), one.help) for one in SETTINGS),
            ("", _code("FAIRLEAD_DEBUG"), "", "Set to anything: a defect shows its traceback."),
        ],
    )


def _parent(key: Key) -> str:
    return key.path.rpartition(".")[0]


def _parents(known: Iterable[Key]) -> list[str]:
    return list(dict.fromkeys(parent for key in known if (parent := _parent(key))))


def _keys(some: Iterable[Key]) -> str:
    return _table(
        ("key", "kind", "default", "meaning", "example"),
        (
            (
                _code(key.path.rpartition(".")[2]),
                key.kind,
                _code(key.default),
                key.text,
                ", ".join(_code(json.dumps(example)) for example in key.examples),
            )
            for key in some
        ),
    )


# --- Options of backends ----------------------------------------------------------------------------------------------


def _nvidia_options() -> Iterator[str]:
    return _options(
        "nvidia",
        nvidia.Options,
        "`fairlead nvidia --print-config` shows what NVIDIA's own settings mean in these keys. "
        "Guides: [NVIDIA](../guide/nvidia.md), [health](../guide/nvidia-health.md), [CDI](../guide/cdi.md), "
        "[MPS](../guide/mps.md).",
        "mig: mixed\n    health: {watchedXids: [31]}",
    )


def _paths_options() -> Iterator[str]:
    return _options("paths", paths.Options, "[Guide](../guide/any-device-path.md)", "devices: [{preset: kvm}]")


def _amd_options() -> Iterator[str]:
    return _options(
        "amd", amd.Options, "[Guide](../guide/amd-hardware.md)", "ways: [cdi-cri]\n    health: {tolerated: {umc: 2}}"
    )


def _options(kind: str, struct: type[msgspec.Struct], guides: str, example: str) -> Iterator[str]:
    known = keys(struct)
    yield f"# Options of the {kind} backend"
    needed = " and ".join(f"`{field.encode_name}`" for field in msgspec.structs.fields(struct) if field.required)
    left_out = f"Every one but {needed}" if needed else "Every one"
    yield f"The keys of an entry of `backends` with `kind: {kind}`. {left_out} may be left out. {guides}"
    yield f"```yaml\nbackends:\n  - kind: {kind}\n    {example}\n```"
    yield from _sections(known)
    yield "A duration is written as in the [configuration](configuration.md#durations-sizes-and-patterns)."


def _sections(known: Sequence[Key]) -> Iterator[str]:
    yield _keys(key for key in known if "." not in key.path)
    for parent in _parents(known):
        yield f"## {parent}"
        yield _keys(key for key in known if _parent(key) == parent)


def _scheduler() -> Iterator[str]:
    yield "# Configuration of `fairlead scheduler`"
    yield (
        "One YAML file, which `--config` or `FAIRLEAD_SCHEDULER` names. "
        "Every key but `system` of a resource may be left out. "
        "Unknown keys, wrong types and contradictions are refused, all at once. [Guide](../guide/scheduler.md)"
    )
    yield from _sections(keys(SchedulerSpec))


# --- Commands ---------------------------------------------------------------------------------------------------------


def _commands() -> Iterator[str]:
    yield "# Commands"
    yield "`fairlead COMMAND --help` prints the same text."
    yield str(cli.epilog)
    for path, command in _walk(cli, "fairlead"):
        yield f"## {path}"
        yield from _command(path, command)


def _walk(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    for name, command in sorted(group.commands.items()):
        if isinstance(command, click.Group):
            yield from _walk(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def _command(path: str, command: click.Command) -> Iterator[str]:
    context = click.Context(command, info_name=path)
    yield f"```text\n{path} {' '.join(command.collect_usage_pieces(context))}\n```"
    for paragraph in (command.help or "").split("\n\n"):
        # click's mark for lines that must stay as they are.
        if paragraph.startswith("\b\n"):
            yield _verbatim(paragraph)
        else:
            yield " ".join(paragraph.split())
    options = [option for option in command.params if isinstance(option, click.Option)]
    common = {"--config", *(setting.flag for setting in SETTINGS)}
    if not common <= {name for option in options for name in option.opts}:
        common = set()
    rows = [_option(option, context) for option in options if not common & set(option.opts)]
    if common:
        rows.append(("", "and the [common settings](configuration.md#flags-and-environment)"))
    if rows:
        yield _table(("option", "meaning"), rows)


def _verbatim(paragraph: str) -> str:
    lines = [line.strip() for line in paragraph.splitlines()[1:]]
    return "\n".join(["```text", *lines, "```"])


def _option(option: click.Option, context: click.Context) -> tuple[str, str]:
    names = ", ".join(option.opts)
    if not option.is_flag:
        names += f" {option.make_metavar(context)}"
    text = option.help or ""
    if option.show_default and option.default is not None:
        text += f" Default: {_code(str(option.default))}."
    return _code(names), text


# --- The Helm chart ---------------------------------------------------------------------------------------------------


def _chart() -> Iterator[str]:
    yield "# Values of the Helm chart"
    yield "From `deploy/chart/values.schema.json`. Some name the dialect that they are for. [Guide](../guide/deploy.md)"
    values = json.loads((REFERENCE.parents[1] / "deploy" / "chart" / "values.schema.json").read_text())
    yield _table(("key", "default", ""), _chart_rows(values))


def _chart_rows(node: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, ...]]:
    for key, below in node["properties"].items():
        name = f"{above}{key}"
        if "properties" in below:
            yield _code(name), "", below["description"]
            yield from _chart_rows(below, f"{name}.")
            continue
        one_of = [_code(str(one)) for one in below.get("enum", ()) if one]
        text = below["description"] + (f" One of {', '.join(one_of)}." if one_of else "")
        default = below["default"]
        shown = "" if default in (None, "", [], {}) else _code(json.dumps(default))
        yield _code(name), shown, text


# --- RBAC -------------------------------------------------------------------------------------------------------------


def _rbac() -> Iterator[str]:
    yield "# RBAC"
    yield (
        "What Fairlead may need of the API server, feature by feature, and nothing more. "
        "Without these features no account is needed. "
        "A call that is forbidden says which rule is missing, in this form. "
        "With just these rules, amounts and `fairlead node` run against a real API server "
        "(`tests/node/test_extended.py`, also with one rule less), and so do doslab, gpushare and volcano "
        "(`tests/node/test_assign.py`). The others are held to theirs by a fake API server."
    )
    for feature, rules in FEATURES.items():
        yield f"## {feature[0].upper()}{feature[1:]}"
        head = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata:\n  name: fairlead\nrules:"
        yield f"<!-- test: skip not a configuration of Fairlead -->\n```yaml\n{head}\n{as_yaml(rules)}\n```"
        if feature in INSTEAD:
            yield INSTEAD[feature]
    yield (
        "All of these are rules of a ClusterRole: nodes have no namespace, and a node's pods are in all of them. "
        'RBAC cannot say "this node only" for an account that all nodes share.'
    )


def main() -> None:
    REFERENCE.mkdir(exist_ok=True)
    for name, text in pages().items():
        (REFERENCE / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

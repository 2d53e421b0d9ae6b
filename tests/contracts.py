"""A contract for import-linter: a name is used only in named modules. `make lint` checks it with the layers.

import-linter itself forbids one module of ours another. This type says who may use something from outside, and knows
names below a module, such as `os.environ`. It reads the source: imports under TYPE_CHECKING and inside functions count.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class UsedOnlyIn(Contract):
    """`names`: dotted, and all below each. `modules`: who may use them, and all below each; empty: no module may."""

    type_name = "used_only_in"
    names = fields.ListField(subfield=fields.StringField())
    modules = fields.ListField(subfield=fields.StringField(), required=False)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        options = vars(self)  # on an instance a field is its value
        names: list[str] = options["names"]
        modules: list[str] = options["modules"] or []
        used = set()
        offences = []
        for module, path in sources(self.session_options["root_packages"]):
            for name, line in uses(ast.parse(path.read_bytes())):
                if not any(is_within(name, listed) for listed in names):
                    continue
                if allowed := [listed for listed in modules if is_within(module, listed)]:
                    used.update(allowed)
                else:
                    offences.append(f"{module}:{line} uses {name}")
        offences += [f"{module} may, and does not: take it off the list" for module in modules if module not in used]
        return ContractCheck(kept=not offences, metadata={"offences": sorted(set(offences))})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for offence in check.metadata["offences"]:
            output.print_error(f"- {offence}")


def sources(packages: list[str]) -> Iterator[tuple[str, Path]]:
    """Every module of the packages, with its file."""
    for package in packages:
        spec = find_spec(package)
        assert spec is not None
        for root in map(Path, spec.submodule_search_locations or ()):
            for path in sorted(root.rglob("*.py")):
                parts = path.relative_to(root).with_suffix("").parts
                yield ".".join((package, *parts)).removesuffix(".__init__"), path


def is_within(name: str, outer: str) -> bool:
    return name == outer or name.startswith(f"{outer}.")


def uses(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Every dotted name of another module that the code imports or reaches, and the line."""
    origins: dict[str, str] = {}  # a name in this file -> where it comes from
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
                origins[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                yield f"{node.module}.{alias.name}", node.lineno
                origins[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (dotted := _dotted(node, origins)):
            yield dotted, node.lineno


def _dotted(node: Any, origins: dict[str, str]) -> str:
    """`os.environ` of `os.environ.get`, also where `os` has another name here; empty for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in origins:
        return ""
    return ".".join([origins[node.id], *reversed(parts)])

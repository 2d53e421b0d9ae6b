"""Files that are made to harm whoever reads them: as files, as texts, and by one bad value in an otherwise good one."""

from __future__ import annotations

import copy
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml


def _link(target: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(target)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def _large(path: Path) -> None:
    with path.open("wb") as file:
        file.write(b"# ")
        file.truncate(50 * 2**20)


def _loop_of_two(path: Path) -> None:
    path.symlink_to("other")
    path.with_name("other").symlink_to(path.name)


# What may stand where a file is expected.
FILES: Mapping[str, Callable[[Path], None]] = {
    "missing": lambda _path: None,
    "fifo": os.mkfifo,
    "directory": Path.mkdir,
    "socket": _socket,
    "zero": _link("/dev/zero"),
    "random": _link("/dev/urandom"),
    "terminal": _link("/dev/tty"),
    "memory": _link("/proc/self/mem"),
    "nowhere": _link("/nowhere/at/all"),
    "large": _large,
    "loop": lambda path: path.symlink_to(path.name),
    "loop of two": _loop_of_two,
}


def _laughs(wide: int, deep: int) -> str:
    lines = [f"a0: &a0 [{', '.join(['lol'] * wide)}]"]
    return "\n".join([*lines, *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * wide)}]" for n in range(1, deep))])


def _merges(wide: int, deep: int) -> str:
    lines = ["a0: &a0 {x0: 1, y0: 2}"]
    return "\n".join(
        [*lines, *(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * wide)}], x{n}: 1}}" for n in range(1, deep))]
    )


# What no reader here takes, whatever it reads.
_TEXTS: Mapping[str, str | bytes] = {
    "laughs 9 9": _laughs(9, 9),
    "laughs 2 40": _laughs(2, 40),
    "laughs 200 4": _laughs(200, 4),
    "laughs as keys": "a: &a [x, x]\nb: &b [*a, *a]\n? *b\n: 1\n",
    "merges 9 9": _merges(9, 9),
    "merges 2 40": _merges(2, 40),
    "merge of itself": "a: &a\n  <<: *a\n",
    "merge of a list of itself": "a: &a\n  b: &b\n    <<: [*a, *b]\n",
    "merge of a number": "<<: 5\n",
    "anchor loop": "a: &a [*a]\n",
    "anchor loop of two": "a: &a\n  b: &b\n    c: *a\n    d: *b\n",
    "alias of nothing": "a: *nothing\n",
    "deep aliases": "a: &a [x]\n" + "".join(f"b{n}: &{'ab'[n % 2]} [*{'ba'[n % 2]}]\n" for n in range(1, 99)),
    "60 KB of [": "[" * 60_000,
    "60 KB of {": "{" * 60_000,
    "60 KB of [{": "[{" * 30_000,
    "60 KB of {a: [": "{a: [" * 12_000,
    "60 KB of -": "- " * 30_000,
    "60 KB of ?": "? " * 30_000,
    "nesting of 500": "[" * 500 + "]" * 500,
    "nesting of 500 in JSON": '{"a":' * 500 + "1" + "}" * 500,
    "nesting of 70 in JSON": '{"a":' * 70 + "1" + "}" * 70,
    "indents": "".join(" " * n + "a:\n" for n in range(500)),
    "many values": "a: [" + "1, " * 100_000 + "1]",
    "many keys": "".join(f"k{n}: 1\n" for n in range(60_000)),
    "many values in JSON": '{"a": [' + "1, " * 100_000 + "1]}",
    "many directives": "".join(f"%TAG !a{n}! x\n" for n in range(40_000)) + "--- a\n",
    "many documents": "---\na: 1\n" * 10_000,
    "many anchors": "".join(f"- &a{n} x\n" for n in range(60_000)),
    "one long text": f"a: {'x' * 900_000}\n",
    "one long key": f"? {'x' * 900_000}\n: 1\n",
    "one long number": f"a: {'9' * 900_000}\n",
    "one long number in hex": f"a: 0x{'f' * 900_000}\n",
    "10^400": f"a: 1{'0' * 400}\n",
    "10^400 in JSON": '{"a": 1' + "0" * 400 + "}",
    "10^5000 in JSON": '{"a": 1' + "0" * 5000 + "}",
    "one long time": f"a: {':'.join(['59'] * 30_000)}.5\nb\n",
    "one long tag": f"a: !<{'x' * 900_000}> 1\n",
    "one long anchor": f"a: &{'x' * 900_000} *y\n",
    "1.1 MB": "#" * 1_100_000,
    "NUL": "a: \0\n",
    "NUL alone": "\0",
    "NUL in JSON": '{"a": "\0"}',
    "escape": "a: \x1b[2J\n",
    "escape in a key": "\x1b]0;mine\x07: 1\n",
    "C1 control": "a: \x9b2J\n",
    "delete": "a: \x7f\n",
    "no UTF-8": b"a: \xff\n",
    "no UTF-8 alone": b"\x80",
    "overlong UTF-8": b"a: \xc0\xaf\n",
    "UTF-8 of a surrogate": "a: \ud800\n",
    "UTF-16": "a: 1\n".encode("utf-16"),
    "UTF-32": "a: 1\n".encode("utf-32"),
    "half a pair in JSON": '{"a": "\\ud800"}',
    "half a pair": 'a: "\\udfff"\n',
    "no character": 'a: "\\Uffffffff"\n',
    "BOM in the middle": "a: 1\n\ufeffb: 2\n---\n",
    "tab": "a:\n\tb: 1\n",
    "key twice": "rules: []\nrules: []\n",
    "key twice in JSON": '{"rules": [], "rules": []}',
    "key twice by kind": "1: a\n'1': b\n",
    "list as key": "? [a, b]\n: 1\n",
    "mapping as key": "? {a: b}\n: 1\n",
    "python object": "a: !!python/object/apply:os.system [id]\n",
    "python name": "!!python/name:os.system x\n",
    "python tuple": "a: !!python/tuple [1]\n",
    "own tag": "a: !own 1\n",
    "binary": "a: !!binary aGVsbG8=\n",
    "set": "a: !!set {x, y}\n",
    "omap": "a: !!omap [x: 1]\n",
    "pairs": "a: !!pairs [x: 1]\n",
    "int that is none": "a: !!int many\n",
    "int that is empty": "a: !!int ''\n",
    "float that is none": "a: !!float many\n",
    "bool that is none": "a: !!bool many\n",
    "text for a mapping": "just text\n",
    "list for a mapping": "[1, 2]\n",
    "number for a mapping": "5\n",
    "date for a mapping": "2026-11-16\n",
    "true for a mapping": "true\n",
    "open bracket": "a: [\n",
    "open quote": 'a: "x\n',
    "open brace": "{\n",
    "percent": "%\n",
    "wrong YAML": "%YAML 9.9\n--- a\n",
    "at": "a: @x\n",
    "backtick": "a: `x`\n",
    "two documents": "a: 1\n---\na: 2\n",
    "unknown key with an escape": '"\\e[31mred": 1\n',
    "unknown key that is long": f'"{"x" * 60_000}": 1\n',
    "unknown key with a line break": '"a\\nb": 1\n',
    "number as key": "1: 2\n",
    "null as key": "~: 2\n",
    "NaN as key": ".nan: 2\n",
}
TEXTS: Mapping[str, bytes] = {
    name: text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass") for name, text in _TEXTS.items()
}

# What takes the place of each value in turn.
VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    2**31,
    2**63,
    2**64,
    10**30,
    -(10**60),
    1e308,
    -1e308,
    5e-324,
    float("inf"),
    float("nan"),
    "",
    " ",
    "-",
    "/",
    "..",
    "../../x",
    "a/../../b",
    "a\0b",
    "a\nb",
    "\x1b[2J\x07",
    "\u202eabc",
    "é" * 40,
    "{",
    "{x}",
    "{0.__class__}",
    "%s%n",
    "[" * 200,
    "(" * 200,
    "*" * 300,
    "a" * 5000,
    "9" * 60,
    f"{'9' * 50}h",
    f"{'9' * 50}TiB",
    "1e999s",
    "1e400",
    "2026-11-16",
    [],
    {},
    [[[[[]]]]],
    [None],
    [True, "a", 1],
    ["a"] * 3000,
    {"a": {"b": {"c": 1}}},
    {"": ""},
    {"a" * 5000: "x"},
    {"\x1b": "\x1b"},
)


def spoiled(good: Any) -> Iterator[tuple[str, Any]]:
    """The good document with each value in turn replaced by each bad one, and with each key in turn gone or renamed."""
    for path in _paths(good):
        for number, value in enumerate(VALUES):
            made = copy.deepcopy(good)
            _at(made, path[:-1])[path[-1]] = value
            yield f"{'.'.join(map(str, path))}={number}", made
        made = copy.deepcopy(good)
        del _at(made, path[:-1])[path[-1]]
        yield f"{'.'.join(map(str, path))} gone", made


def _paths(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    steps = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for step, below in steps:
        yield (*path, step)
        yield from _paths(below, (*path, step))


def _at(data: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        data = data[step]
    return data


class _Plain(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]  # the C one when there is one
    def ignore_aliases(self, data: Any) -> bool:
        return True


def dump(data: Any) -> bytes:
    text = yaml.dump(data, Dumper=_Plain, allow_unicode=False, width=10**9)
    return text.encode()

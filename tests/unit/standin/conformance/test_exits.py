"""A crash is told apart from an end by a plugin's own wish, in the words of its runtime."""

from __future__ import annotations

import pytest

from fairlead.standin.conformance.exits import OutputScan

GO = b"""I1116 09:01:51 serving
panic: send on closed channel

goroutine 26 [running]:
main.main()
\t/src/main.go:12 +0x1d
"""
PYTHON = b"""serving
Traceback (most recent call last):
  File "plugin.py", line 3, in <module>
    main()
KeyError: 'Dev-1'
"""
CHAINED = PYTHON.replace(
    b"serving\n", b"Traceback (most recent call last):\n  x\nOSError: no\n\nDuring handling of it, another came:\n\n"
)
RUST = b"thread 'main' (7) panicked at src/main.rs:3:5:\nno device\nnote: run with RUST_BACKTRACE=1\n"


@pytest.mark.parametrize(
    ("printed", "code", "crash"),
    [
        (GO, 2, "panic: send on closed channel"),
        (b"fatal error: concurrent map writes\n\ngoroutine 1 [running]:\n", 2, "fatal error: concurrent map writes"),
        (PYTHON, 1, "KeyError: 'Dev-1'"),
        (CHAINED, 1, "KeyError: 'Dev-1'"),
        (RUST, 101, "thread 'main' (7) panicked at src/main.rs:3:5:"),
        (b"", -11, "signal SIGSEGV"),
        (b"", 139, "exit code 139"),
        (
            b"terminate called after throwing an instance of 'int'\n",
            -6,
            "terminate called after throwing an instance of 'int'",
        ),
        (b"level=fatal msg=refused\n", 1, ""),
        (b"", 0, ""),
        (b"", 143, ""),
        (GO, 0, ""),
        (PYTHON + b"tried again, and gave up\n", 1, ""),
    ],
    ids=[
        "Go",
        "Go's runtime",
        "Python",
        "chained",
        "Rust",
        "signal",
        "shell",
        "C++",
        "fatal",
        "good",
        "TERM",
        "recovered",
        "logged",
    ],
)
def test_what_counts_as_a_crash(printed: bytes, code: int, crash: str):
    for size in (1, 7, 4096):
        words = OutputScan()
        for start in range(0, len(printed), size):
            words.feed(printed[start : start + size])
        assert words.end(code).crash == crash


def test_the_line_of_a_crash_is_kept_however_much_follows():
    words = OutputScan()
    words.feed(GO)
    for _ in range(1000):
        words.feed(b"\tsome/frame.go:1 +0x1d\n" * 100)
    assert words.end(2).crash == "panic: send on closed channel"


def test_output_without_an_end_is_bounded_and_fit_for_a_terminal():
    words = OutputScan()
    for _ in range(1000):
        words.feed(b"\x1b[31m\xff" * 1000)
    ending = words.end(1)
    assert len(ending.last) <= 200
    assert ending.last.isprintable()

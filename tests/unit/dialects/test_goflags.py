"""Flags are read as Go programs read them: their spellings, their variables, and the odd cases that users rely on."""

from __future__ import annotations

import pytest

from fairlead.dialects.goflags import FOREVER, BadFlag, Flag, Kind, duration, masked, parse

FLAGS = (
    Flag("root", Kind.TEXT, "/", ("ROOT", "OLD_ROOT"), ("nvidia-root",)),
    Flag("pass", Kind.BOOL, False, ("PASS",)),
    Flag("ways", Kind.TEXTS, ("envvar",), ("WAYS",)),
    Flag("ids", Kind.INTS, None, ("IDS",)),
    Flag("sleep", Kind.DURATION, 60.0, ("SLEEP",)),
)


def values(*args: str, **environ: str) -> dict[str, object]:
    parsed = parse(FLAGS, args, environ)
    return {name: parsed.values[name] for name in parsed.given}


@pytest.mark.parametrize("word", ["--root=/x", "-root=/x", "--nvidia-root=/x"])
def test_one_dash_or_two_and_any_spelling(word: str):
    assert values(word) == {"root": "/x"}
    assert values(*word.split("=")) == {"root": "/x"}


def test_a_flag_wins_over_its_variables_and_the_first_variable_over_the_second():
    assert values("--root=/flag", ROOT="/env") == {"root": "/flag"}
    assert values(ROOT="/env", OLD_ROOT="/old") == {"root": "/env"}
    assert values(OLD_ROOT="/old") == {"root": "/old"}


def test_two_spellings_of_one_flag_are_refused():
    with pytest.raises(BadFlag, match="two forms of the same flag: root nvidia-root"):
        values("--root=/a", "--nvidia-root=/b")


def test_lists_are_split_trimmed_and_added_up():
    assert values("--ways=a, b", "--ways=c") == {"ways": ("a", "b", "c")}
    assert values("--ways=a", WAYS="b") == {"ways": ("a",)}
    assert values("--ids=0,1") == {"ids": (0, 1)}


def test_whole_numbers_are_read_as_go_reads_them():
    assert values("--ids=010,0x10,0b11,0o17,1_000,0_7,-0x1,+5,00,0") == {"ids": (8, 16, 3, 15, 1000, 7, -1, 5, 0, 0)}


def test_empty_variables():
    assert values(ROOT="", PASS="", WAYS="", IDS="", SLEEP="") == {"root": "", "pass": False, "ways": ("",)}


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--pass=yes"], "--pass: 'yes' is not true or false"),
        (["--pass="], "--pass: '' is not true or false"),
        (["--ids="], "--ids: '' is not whole numbers"),
        (["--ids=x"], "--ids: 'x' is not whole numbers"),
        (["--ids=08"], "--ids: '08' is not whole numbers"),
        (["--ids=1__0"], "--ids: '1__0' is not whole numbers"),
        (["--ids=\u0663"], "is not whole numbers"),
        (["--ids=9223372036854775808"], "is not whole numbers"),
        (["--sleep=5"], "--sleep: '5' is not a duration"),
        (["--root"], "flag needs an argument: -root"),
        (["--rot=/"], "flag provided but not defined: -rot"),
    ],
)
def test_what_no_go_program_takes_is_named(args: list[str], words: str):
    with pytest.raises(BadFlag) as error:
        parse(FLAGS, args, {})
    assert words in str(error.value)
    assert error.value.exit_code == 1


def test_reading_stops_at_the_first_word_that_is_no_flag():
    parsed = parse(FLAGS, ["--pass", "false", "--root=/x"], {})
    assert parsed.values["pass"] is True
    assert parsed.rest == ("false", "--root=/x")
    assert parse(FLAGS, ["--", "--pass"], {}).rest == ("--pass",)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5s", 5.0), ("1m30s", 90.0), ("1.5h", 5400.0), ("100ms", 0.1), ("0", 0.0), ("infinite", FOREVER), ("-1s", -1.0)],
)
def test_durations(text: str, seconds: float):
    assert duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "5", "s", "5 s", "1x", "1s2"])
def test_what_is_no_duration(text: str):
    with pytest.raises(ValueError, match=r"^"):
        duration(text)


@pytest.mark.parametrize(
    ("args", "shown"),
    [
        (["-token", "s", "-v"], ["-token", "***", "-v"]),
        (["--token=s=t", "x"], ["--token=***", "x"]),
        (["-t", "-token"], ["-t", "***"]),
        (["token", "s", "--tokens", "s"], ["token", "s", "--tokens", "s"]),
        (["-v", "-token"], ["-v", "-token"]),
    ],
)
def test_what_is_secret_is_not_shown(args, shown):
    assert masked((Flag("token", aliases=("t",), secret=True), Flag("v", Kind.BOOL)), args) == shown

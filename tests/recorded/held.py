"""How a recording of a memory-sharing plugin is held to: played, and every place compared."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from tests.recorded import process
from tests.recorded.outcome import Differences, answer_of, expected, faults, number, recorded, timeless, unlike
from tests.recorded.play import play
from tests.recorded.stage import COMMANDS, Stage, eventually, staged
from tests.vectors.sharing import Case

GUIDES = Path(__file__).parents[2] / "docs/guide"


async def hold(
    case: Case,
    differences: Differences,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    *more: str,
    asks: bool = False,
) -> None:
    """With the daemon in this process. `more`: flags of ours. `asks`: see `play`."""
    async with staged(case, root) as stage:
        ours = await play(case, stage, expected(differences, case), monkeypatch, *more, asks=asks)
    _none(faults(differences, case, ours, ends=False))


async def hold_process(case: Case, differences: Differences, root: Path) -> None:
    async with staged(case, root) as stage:
        ours = await process.run(case, stage, expected(differences, case))
    _none(faults(differences, case, ours))
    assert "Traceback" not in stage.end.log


async def hold_end(case: Case, differences: Differences, root: Path) -> None:
    """One that serves, by how its process ends."""
    async with staged(case, root) as stage:
        await stage.end.start(process.command(case, stage), process.environment(stage))
        await stage.listed()
        runs_on = {"runs on": stage.end.exit_code is None} if case.outputs.alive is not None else {}
        ours = runs_on | {"exit": await stage.end.stop()}
    _none(faults(differences, case, ours, ends=True))
    assert "Traceback" not in stage.end.log


def admissions(cases: Mapping[str, Case]) -> list[str]:
    """Those that a kubelet can play: it asks for one container at a time, and for ids that there are."""
    found = []
    for name, case in cases.items():
        asked = [answer.asked for answer in case.outputs.answers if answer.rpc == "Allocate"]
        if asked and all(len(one) == 1 and one[0] and not _is_made_up(one[0]) for one in asked):
            found.append(name)
    return found


def _is_made_up(ids: list[str] | int) -> bool:
    return not isinstance(ids, int) and "x" in ids


def _none(found: list[str]) -> None:
    if found:
        pytest.fail("\n".join(found), pytrace=False)


async def hold_command(case: Case, root: Path) -> None:
    """The command itself, from the kubelet's question to the pod's mark and to SIGTERM."""
    (answer,) = case.outputs.answers
    ((pod, annotations),) = case.outputs.final_pod_annotations.items()
    namespace, _, name = pod.partition("/")
    theirs = recorded(case)
    async with staged(case, root) as stage:
        await stage.end.start(process.command(case, stage), process.environment(stage))
        await stage.listed()
        (ids,) = stage.choose(answer.asked)
        found = answer_of("answer 0", await stage.allocate([ids]))
        assert not unlike({key: value for key, value in theirs.items() if key.startswith("answer 0")}, found), found
        stage.holders[namespace, name, "c0"] = ids

        def marks() -> Mapping[str, str]:
            now = {f"pod {pod} {key}": value for key, value in stage.annotations()[pod].items()}
            return {key.removeprefix(f"pod {pod} "): value for key, value in timeless(theirs, now).items()}

        assert await eventually(lambda: marks() == annotations), f"{marks()}\n{stage.end.log}"
        assert await stage.end.stop() == 0
        assert_quiet(stage)


def assert_quiet(stage: Stage) -> None:
    assert stage.end.sockets() == []
    assert "Traceback" not in stage.end.log
    assert "fake-token" not in stage.end.log


def _is_test(name: str) -> bool:
    """Whether it is a test, by its file and its name."""
    file, _, test = name.partition("::")
    return bool(test) and f"def {test}(" in (GUIDES.parents[1] / file).read_text()


def check_table(peer: str, cases: Iterable[str], differences: Differences) -> None:
    """Every number is a recording's, and the guide has these lines and no others."""
    check_page(COMMANDS[peer], f"<!-- differences: {COMMANDS[peer]} -->", cases, differences)


def check_page(guide: str, mark: str, cases: Iterable[str], differences: Differences) -> None:
    """`mark`: what the table stands after."""
    numbers = {number(name) for name in cases}
    for key, difference in differences.items():
        named = {one for place in difference.places for one in place.cases.split()}
        assert named or _is_test(difference.shown_by), f"{key} shows nowhere"
        assert named <= numbers, f"{key} names {named - numbers}"
    page = (GUIDES / f"{guide}.md").read_text()
    table = page.partition(mark)[2].partition("\n#")[0]
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| (.+?) \|$", table, re.MULTILINE))
    texts = {key: difference.text for key, difference in differences.items()}
    assert rows == texts, f"{page[:40]!r} is not up to date: {sorted(rows.items() ^ texts.items())}"

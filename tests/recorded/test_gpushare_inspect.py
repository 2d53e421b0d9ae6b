"""Every recording of kubectl-inspect-gpushare, asked of ours: the same text, or a difference that is meant."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

from fairlead.cli.gpushare_inspect import main
from tests.apiserver.server import Request, api_server
from tests.recorded.inspect_differences import DIFFERENCES
from tests.vectors.gpushare_inspect import Inspection, inspections

CASES = inspections()
GUIDE = Path(__file__).parents[2] / "docs/guide/gpushare-inspect.md"
NO_UNIT = ("unit-unknown", {"GPU Memory()": "GPU Memory"})
# The words of the recording that are others with ours.
OTHERWISE = {
    "105-inspect-plain-node": NO_UNIT,
    "107-inspect-empty": NO_UNIT,
    "109-inspect-count-zero": NO_UNIT,
    "110-inspect-index-out-of-range": (
        "index-shown",
        {
            "GPU1(Allocated)  \n": "GPU1(Allocated)  GPU7(Allocated)  \n",
            "0                0                \n": "0                0                4                \n",
            f"{'-' * 25}\n": f"{'-' * 27}\n",
        },
    ),
}
NOTES = {
    "105-inspect-plain-node": "no node here offers aliyun.com/gpu-mem",
    "107-inspect-empty": "no node here offers aliyun.com/gpu-mem",
    "109-inspect-count-zero": "node n1 offers no aliyun.com/gpu-count: only GPUs that pods name are shown",
    "110-inspect-index-out-of-range": "pod default/a is on GPU 7, and node n1 counts 2: 0 to 1",
}


async def play(case: Inspection, directory: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[int, list[Request]]:
    async with api_server() as server:
        for node in case.inputs.api_objects.nodes:
            server.store.put("nodes", node)
        for pod in case.inputs.api_objects.pods:
            server.store.put("pods", pod, pod["metadata"]["namespace"])
        kubeconfig = {
            "clusters": [{"name": "c", "cluster": {"server": server.url}}],
            "contexts": [{"name": "x", "context": {"cluster": "c"}}],
            "current-context": "x",
        }
        (directory / "config").write_text(json.dumps(kubeconfig))
        monkeypatch.setenv("KUBECONFIG", str(directory / "config"))
        code = await asyncio.to_thread(main, case.inputs.argv[1:])
        return code, server.requests


@pytest.mark.parametrize("name", CASES)
async def test_ours_prints_the_same(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    case = CASES[name]
    code, requests = await play(case, tmp_path, monkeypatch)
    expected = "\n".join(case.outputs.stdout)
    if name in OTHERWISE:
        difference, words = OTHERWISE[name]
        assert difference in DIFFERENCES
        for theirs, ours in words.items():
            assert theirs in expected
            expected = expected.replace(theirs, ours)
    printed = capsys.readouterr()
    assert (printed.out, code) == (expected, case.outputs.exit["returncode"])
    note = NOTES.get(name)
    assert printed.err == (f"fairlead gpushare inspect: note: {note}\n" if note else "")
    assert [(it.method, it.path) for it in requests] == [(it["method"], it["path"]) for it in case.outputs.api_requests]


def test_every_recording_is_there():
    assert len(CASES) == 9


def test_the_guide_has_every_difference_and_no_other():
    page = GUIDE.read_text().partition("prints otherwise")[2]
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| (.+?) \|$", page, re.MULTILINE))
    assert rows == DIFFERENCES

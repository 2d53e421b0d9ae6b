"""Scores between GPUs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fairlead.backends.nvidia.links import LEVELS, NvLinks, score_links
from fairlead.backends.nvidia.snapshot import Gpu


def gpus(count: int) -> list[Gpu]:
    return [Gpu(f"GPU-{n}", n, n, f"0000:{n:02x}:00.0") for n in range(count)]


def test_each_level_has_its_score_and_each_link_a_hundred() -> None:
    pair = gpus(2)
    for level, score in LEVELS.items():
        links = score_links(pair, {("GPU-0", "GPU-1"): level}, {})
        assert links.between("GPU-1", "GPU-0") == score
    joined = score_links(pair, {("GPU-0", "GPU-1"): 50}, {"GPU-0": NvLinks({"0000:01:00.0": 2})})
    assert joined.between("GPU-0", "GPU-1") == 210


def test_a_link_that_one_side_reports_counts() -> None:
    one_sided = {"GPU-0": NvLinks({"0000:01:00.0": 1}), "GPU-1": NvLinks({"0000:00:00.0": 4})}
    assert score_links(gpus(2), {}, one_sided).between("GPU-0", "GPU-1") == 400


def test_gpus_on_switches_are_joined_by_all_their_links() -> None:
    ends = {"GPU-0": NvLinks(to_switches=12), "GPU-1": NvLinks(to_switches=10), "GPU-2": NvLinks()}
    links = score_links(gpus(3), {}, ends)
    assert links.between("GPU-0", "GPU-1") == 1000
    assert links.between("GPU-0", "GPU-2") == 0


def test_no_pair_has_more_links_than_a_gpu() -> None:
    ends = {"GPU-0": NvLinks({"0000:01:00.0": 30}), "GPU-1": NvLinks()}
    assert score_links(gpus(2), {}, ends).between("GPU-0", "GPU-1") == 1800


def test_an_unknown_level_has_no_score() -> None:
    assert not score_links(gpus(2), {("GPU-0", "GPU-1"): 77}, {})


@given(st.data())
def test_scores_are_the_same_from_both_sides_and_a_missing_answer_harms_its_pair_only(data: st.DataObject) -> None:
    those = gpus(data.draw(st.integers(2, 6)))
    pairs = [(one.uuid, other.uuid) for one in those for other in those if one.index < other.index]
    levels = {pair: data.draw(st.sampled_from(sorted(LEVELS))) for pair in pairs}
    counts = st.dictionaries(st.sampled_from([gpu.bus_id for gpu in those]), st.integers(1, 20))
    ends = {gpu.uuid: NvLinks(data.draw(counts), data.draw(st.integers(0, 18))) for gpu in those}
    whole = score_links(those, levels, ends)
    missing = data.draw(st.sampled_from(pairs))
    partial = score_links(those, {pair: level for pair, level in levels.items() if pair != missing}, ends)
    for one, other in pairs:
        assert whole.between(one, other) == whole.between(other, one) > 0
        if (one, other) != missing:
            assert partial.between(one, other) == whole.between(one, other)

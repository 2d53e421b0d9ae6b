"""A watch's bytes to lines: wherever they are cut, and never without bound."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.cluster.errors import MalformedResponse
from fairlead.cluster.lines import LineSplitter

_line = st.binary(min_size=1, max_size=30).filter(lambda line: b"\n" not in line and bool(line.strip()))


@given(st.lists(_line, max_size=8), st.lists(st.integers(0, 300), max_size=10))
def test_lines_come_out_as_they_went_in(sent: list[bytes], cuts: list[int]):
    data = b"".join(line + b"\n" for line in sent)
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    lines = LineSplitter()
    got = [line for start, end in itertools.pairwise(edges) for line in lines.feed(data[start:end])]
    assert got == sent
    assert not lines.pending


def test_half_a_line_is_pending():
    lines = LineSplitter()
    assert list(lines.feed(b'{"a": 1}\n\n{"b"')) == [b'{"a": 1}']
    assert lines.pending


@pytest.mark.parametrize("data", [b"x" * 11, b"x" * 11 + b"\n"])
def test_a_line_without_end_is_not_kept(data: bytes):
    with pytest.raises(MalformedResponse, match="larger than 10 bytes"):
        list(LineSplitter(10).feed(data))
    small = LineSplitter(10)
    with pytest.raises(MalformedResponse):
        [list(small.feed(bytes([byte]))) for byte in data]


def test_the_bound_is_of_a_line_and_not_of_the_stream():
    lines = LineSplitter(10)
    assert len(list(lines.feed(b"123456789\n" * 50))) == 50

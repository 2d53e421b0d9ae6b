"""Prometheus' text format 0.0.4: families, labels, histograms. Knows no device."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping

TYPE = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0)

Label = tuple[str, str]


class Histogram:
    """Seconds, in fixed buckets. Observing allocates nothing."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS_S) + 1)
        self.sum_s = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS_S, seconds)] += 1
        self.sum_s += seconds


class Exposition:
    def __init__(self) -> None:
        self._lines: list[str] = []

    def family(self, name: str, kind: str, text: str, samples: Iterable[tuple[Iterable[Label], float]]) -> None:
        self._lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
        self._lines += [f"{name}{_labels(labels)} {_number(value)}" for labels, value in samples]

    def gauge(self, name: str, text: str, value: float, *labels: Label) -> None:
        self.family(name, "gauge", text, [(labels, value)])

    def histogram(self, name: str, text: str, label: str, by_value: Mapping[str, Histogram]) -> None:
        self.family(name, "histogram", text, [])
        for value, histogram in sorted(by_value.items()):
            count = 0
            for limit, more in zip((*map(_number, BUCKETS_S), "+Inf"), histogram.counts, strict=True):
                count += more
                self._lines.append(f"{name}_bucket{_labels([(label, value), ('le', limit)])} {count}")
            own = _labels([(label, value)])
            self._lines += [f"{name}_sum{own} {_number(histogram.sum_s)}", f"{name}_count{own} {count}"]

    def encode(self) -> bytes:
        return ("\n".join(self._lines) + "\n").encode()


def _labels(labels: Iterable[Label]) -> str:
    parts = [f'{name}="{_escaped(value)}"' for name, value in labels]
    return f"{{{','.join(parts)}}}" if parts else ""


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))

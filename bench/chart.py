"""The chart of the README: our numbers over NVIDIA's, one bar each. `python -m bench.chart FROM.json TO.svg`.

Draws what a run wrote with `--json` and adds nothing. The picture is legible on light and dark pages: it brings colours
for both.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

from bench.rows import BUSY_LOAD, NVIDIA, OURS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

WIDTH, LEFT, RIGHT = 880, 220, 250
VALUES = 82  # from the ratios to the values behind them
TOP, STEP, BAR, BOTTOM = 66, 30, 14, 62
PLOT = WIDTH - LEFT - RIGHT
LEAST = 1e-4  # where the axis begins
TICKS = {0.0001: "1/10,000", 0.001: "1/1000", 0.01: "1/100", 0.1: "1/10", 1: "equal", 10: "10 x"}
# More is better: its bar is drawn the other way up, so that less is better throughout.
TURNED = {"in_flight": "time per Allocate, 8 in flight"}
TITLES = {
    "admit_p50": "admission, p50",
    "admit_p99": "admission, p99",
    "prefer_16_2": "choice of 2 among 16 GPUs",
    "prefer_16_4": "choice of 4 among 16 GPUs",
    "allocate_p50": "Allocate alone, p50",
    "start_registered": "start → registered",
    "restart_registered": "kubelet restart → registered",
    "fault_frame": "XID → list",
    "pss": "memory (PSS)",
    "idle_cpu": "idle CPU",
}
TITLE = "fairlead nvidia ÷ NVIDIA's plugin: further left is better"
STYLE = """
  text { font: 13px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328 }
  .title { font-size: 15px; font-weight: 600 }
  .faint, .tick { fill: #59636e; font-size: 12px }
  .grid { stroke: #d1d9e0 } .par { stroke: #59636e; stroke-dasharray: 4 3 }
  .better { fill: #1a7f64 } .worse { fill: #bc6a14 }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc } .faint, .tick { fill: #9198a1 }
    .grid { stroke: #3d444d } .par { stroke: #9198a1 }
    .better { fill: #2fb890 } .worse { fill: #e0913a }
  }
"""


@dataclass(frozen=True, slots=True)
class Bar:
    title: str
    ratio: float
    values: str  # ours against theirs


def bars(table: dict[str, Any]) -> Iterator[Bar]:
    """One for each target with a ratio, in the table's order."""
    for target in table["targets"]:
        key, samples = target["row"], table["samples"].get(target["row"], {})
        if target["measured"] is None or not {OURS, NVIDIA} <= samples.keys():
            continue
        row = table["rows"][key]
        ours, theirs = (statistics.median(samples[name]) for name in (OURS, NVIDIA))
        ratio = 1 / target["measured"] if key in TURNED else target["measured"]
        title = TURNED.get(key) or TITLES.get(key, row["title"])
        yield Bar(title, ratio, f"{_number(ours)} / {_number(theirs)} {row['unit'].removesuffix(' of a core')}")


def draw(report: dict[str, Any]) -> str:
    shown = list(bars(report["tables"]["nvidia"]))
    if not shown:
        raise ValueError("nothing was measured against NVIDIA's plugin")
    highest = max(2.0, *(bar.ratio * 1.3 for bar in shown))
    height = TOP + STEP * len(shown) + BOTTOM
    size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title">',
        f"<style>{STYLE}</style>",
        f'<text id="title" class="title" x="{LEFT}" y="24">{TITLE}</text>',
        *_axis(highest, TOP + STEP * len(shown)),
    ]
    for number, bar in enumerate(shown):
        parts += _draw_bar(bar, TOP + STEP * number, highest)
    foot = TOP + STEP * len(shown) + 26
    parts += [_text(16, foot + 18 * line, "faint", text) for line, text in enumerate(_notes(report["facts"]))]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _axis(highest: float, bottom: float) -> Iterator[str]:
    yield _text(WIDTH - RIGHT + VALUES, 46, "tick", "ours / NVIDIA's")
    for value, label in TICKS.items():
        if value > highest:
            continue
        x = _x(value, highest)
        kind = "par" if value == 1 else "grid"
        yield f'<line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 10}" y2="{bottom:.1f}"/>'
        yield f'<text class="tick" text-anchor="middle" x="{x:.1f}" y="46">{escape(label)}</text>'


def _draw_bar(bar: Bar, y: float, highest: float) -> Iterator[str]:
    ends = sorted((_x(bar.ratio, highest), _x(1, highest)))
    width = max(2.0, ends[1] - ends[0])
    kind = "better" if bar.ratio <= 1 else "worse"
    middle = y + BAR / 2 + 5
    yield f'<text text-anchor="end" x="{LEFT - 12}" y="{middle}">{escape(bar.title)}</text>'
    yield f'<rect class="{kind}" x="{ends[0]:.1f}" y="{y}" width="{width:.1f}" height="{BAR}" rx="2"/>'
    yield _text(WIDTH - RIGHT + 8, middle, "", f"{_number(bar.ratio)} x")
    yield _text(WIDTH - RIGHT + VALUES, middle, "faint", bar.values)


def _text(x: float, y: float, kind: str, text: str) -> str:
    return f'<text class="{kind}" x="{x}" y="{y}">{escape(text)}</text>'


def _x(ratio: float, highest: float) -> float:
    """Each power of ten as wide as the next."""
    share = (math.log10(max(ratio, LEAST)) - math.log10(LEAST)) / (math.log10(highest) - math.log10(LEAST))
    return LEFT + PLOT * share


def _notes(facts: dict[str, Any]) -> tuple[str, str]:
    against = f"NVIDIA k8s-device-plugin {facts['nvidia']}, {facts.get('go', 'Go')}, and Python {facts['python']}"
    where = f"{facts['cores']} cores, {facts['system']}, {facts['date']}, medians of {facts['rounds']} rounds"
    busy = f" Taken on a busy machine (load {facts['load']})." if facts["load"] > BUSY_LOAD else ""
    return f"{against}, on the same simulated driver: 8 x H100, or 16.", f"{where}. The axis is logarithmic.{busy}"


def _number(value: float) -> str:
    """Two digits that say something, and thousands with a comma."""
    if value >= 100:
        return f"{value:,.0f}"
    digits = max(0, 1 - math.floor(math.log10(value))) if value > 0 else 0
    return f"{value:.{min(digits, 6)}f}"


def main(words: Sequence[str]) -> int:
    if len(words) != 2:
        print("usage: python -m bench.chart FROM.json TO.svg", file=sys.stderr)
        return 2
    try:
        Path(words[1]).write_text(draw(json.loads(Path(words[0]).read_text())))
    except (OSError, KeyError, ValueError) as error:
        print(f"bench.chart: {words[0]}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

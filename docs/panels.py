"""Panels and variables of a Grafana dashboard, in the words of its JSON model. Knows no metric."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

Panel = dict[str, Any]
Steps = Sequence[tuple[float | None, str]]  # from this value on, this colour

COLUMNS = 24
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
PLAIN: Steps = ((None, "green"),)


class Target(NamedTuple):
    expr: str
    name: str  # of its series, or of its column


class Grid:
    """Puts panels side by side while there is room, below a title for each row."""

    def __init__(self) -> None:
        self.panels: list[Panel] = []
        self._bottom = 0

    def row(self, title: str, panels: Iterable[Panel]) -> None:
        self._add({"type": "row", "title": title, "collapsed": False, "panels": []}, 0, self._bottom, COLUMNS, 1)
        x, y = 0, self._bottom
        for panel in panels:
            width, height = panel.pop("size")
            if x + width > COLUMNS:
                x, y = 0, self._bottom
            self._add(panel, x, y, width, height)
            x += width

    def _add(self, panel: Panel, x: int, y: int, width: int, height: int) -> None:
        place = {"h": height, "w": width, "x": x, "y": y}
        self.panels.append({"id": len(self.panels) + 1, **panel, "gridPos": place})
        self._bottom = max(self._bottom, y + height)


def stat(title: str, description: str, expr: str, *, unit: str = "short", steps: Steps = PLAIN) -> Panel:
    options = {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "colorMode": "value",
        "graphMode": "area",
        "justifyMode": "auto",
        "orientation": "auto",
        "textMode": "value",
    }
    return _panel(
        "stat", title, description, [_target(Target(expr, ""), 0, instant=False)], unit, options, steps, (3, 4)
    )


def graph(
    title: str,
    description: str,
    targets: Sequence[Target],
    *,
    unit: str = "short",
    stack: bool = False,
    bars: bool = False,
    series_colours: Mapping[str, str] | None = None,
    width: int = 12,
) -> Panel:
    options = {
        "legend": {"calcs": ["lastNotNull"], "displayMode": "table", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    made = [_target(target, number, instant=False) for number, target in enumerate(targets)]
    panel = _panel("timeseries", title, description, made, unit, options, PLAIN, (width, 8))
    panel["fieldConfig"]["defaults"]["min"] = 0
    panel["fieldConfig"]["defaults"]["color"] = {"mode": "palette-classic"}
    panel["fieldConfig"]["defaults"]["custom"] = {
        "drawStyle": "bars" if bars else "line",
        "fillOpacity": 60 if bars else 20 if stack else 0,
        "lineWidth": 1,
        "showPoints": "never",
        "spanNulls": False,
        "stacking": {"group": "A", "mode": "normal" if stack else "none"},
    }
    panel["fieldConfig"]["overrides"] = [
        _override(name, "color", {"mode": "fixed", "fixedColor": colour})
        for name, colour in (series_colours or {}).items()
    ]
    return panel


def heatmap(title: str, description: str, expr: str) -> Panel:
    options = {
        "calculate": False,
        "cellGap": 1,
        "color": {"mode": "scheme", "scheme": "Oranges", "steps": 64, "exponent": 0.5},
        "legend": {"show": True},
        "rowsFrame": {"layout": "auto"},
        "tooltip": {"mode": "single", "yHistogram": False},
        "yAxis": {"axisPlacement": "left", "unit": "s"},
    }
    target = _target(Target(expr, "{{le}}"), 0, instant=False) | {"format": "heatmap"}
    return _panel("heatmap", title, description, [target], "short", options, PLAIN, (12, 8))


def table(
    title: str,
    description: str,
    targets: Sequence[Target],
    *,
    rename: Mapping[str, str],
    units: Mapping[str, str] | None = None,
    colours: Mapping[str, Steps] | None = None,
    hide: Iterable[str] = (),
    width: int = COLUMNS,
    height: int = 8,
) -> Panel:
    """One line for each set of labels, a column for each target that has a name."""
    made = [_target(target, number, instant=True) for number, target in enumerate(targets)]
    values = {_value(number, len(targets)): target.name for number, target in enumerate(targets)}
    hidden = dict.fromkeys(("Time", *hide, *(column for column, name in values.items() if not name)), True)
    names = {**rename, **{column: name for column, name in values.items() if name}}
    options = {"cellHeight": "sm", "footer": {"show": False}, "showHeader": True}
    panel = _panel("table", title, description, made, "short", options, PLAIN, (width, height))
    panel["fieldConfig"]["defaults"]["custom"] = {"align": "auto", "filterable": True}
    panel["fieldConfig"]["overrides"] = [
        *(_override(name, "unit", unit) for name, unit in (units or {}).items()),
        *(
            {
                "matcher": {"id": "byName", "options": name},
                "properties": [
                    {"id": "thresholds", "value": _thresholds(steps)},
                    {"id": "custom.cellOptions", "value": {"type": "color-text"}},
                ],
            }
            for name, steps in (colours or {}).items()
        ),
    ]
    order = {name: number for number, name in enumerate([*rename, *values])}
    panel["transformations"] = [
        {"id": "merge", "options": {}},
        {"id": "organize", "options": {"excludeByName": hidden, "indexByName": order, "renameByName": names}},
    ]
    return panel


def datasource() -> dict[str, Any]:
    return {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "current": {},
        "hide": 0,
        "includeAll": False,
        "multi": False,
        "options": [],
        "refresh": 1,
        "regex": "",
    }


def variable(name: str, label: str, query: str) -> dict[str, Any]:
    """Any number of the values that a query finds; all of them at first."""
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "definition": query,
        "query": {"qryType": 1, "query": query, "refId": "PrometheusVariableQueryEditor-VariableQuery"},
        "current": {"text": ["All"], "value": ["$__all"]},
        "allValue": ".*",
        "hide": 0,
        "includeAll": True,
        "multi": True,
        "options": [],
        "refresh": 2,  # with the range of time: nodes come and go
        "regex": "",
        "sort": 1,
    }


def _panel(
    kind: str,
    title: str,
    description: str,
    targets: list[dict[str, Any]],
    unit: str,
    options: dict[str, Any],
    steps: Steps,
    size: tuple[int, int],
) -> Panel:
    return {
        "type": kind,
        "title": title,
        "description": description,
        "datasource": SOURCE,
        "fieldConfig": {"defaults": {"unit": unit, "thresholds": _thresholds(steps)}, "overrides": []},
        "options": options,
        "targets": targets,
        "size": size,  # taken by the grid
    }


def _target(target: Target, number: int, *, instant: bool) -> dict[str, Any]:
    made: dict[str, Any] = {"datasource": SOURCE, "expr": target.expr, "refId": chr(ord("A") + number)}
    if instant:
        return made | {"format": "table", "instant": True, "range": False}
    return made | {"legendFormat": target.name or "__auto", "range": True}


def _value(number: int, count: int) -> str:
    """What Grafana calls the value of a query of a table."""
    return "Value" if count == 1 else f"Value #{chr(ord('A') + number)}"


def _thresholds(steps: Steps) -> dict[str, Any]:
    return {"mode": "absolute", "steps": [{"value": value, "color": colour} for value, colour in steps]}


def _override(name: str, key: str, value: Any) -> dict[str, Any]:
    return {"matcher": {"id": "byName", "options": name}, "properties": [{"id": key, "value": value}]}

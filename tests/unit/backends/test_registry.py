"""Backends by kind: ours from a table, those of others by entry point."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from typing import Any

import pytest
from tests.clock import FakeClock

from fairlead.backends import registry
from fairlead.model.errors import BackendError, ConfigError, UsageError
from fairlead.model.inventory import Findings


class Foreign:
    name = "foreign"

    def __init__(self, options: Any, clock: Any) -> None:
        self.options, self.clock = options, clock

    async def discover(self) -> Findings:
        return Findings()


def refuse(options: Any, clock: Any) -> Foreign:
    raise ConfigError("foreign", ["no"])


def burst(options: Any, clock: Any) -> Foreign:
    raise RuntimeError("boom")


def leave(options: Any, clock: Any) -> Foreign:
    sys.exit(3)


def nothing(options: Any, clock: Any) -> object:
    return object()


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    here = __name__
    monkeypatch.setitem(sys.modules, here, sys.modules[Foreign.__module__])
    values = {name: f"{here}:{name}" for name in ("Foreign", "refuse", "burst", "leave", "nothing", "absent")}
    values["broken"] = "no_such_package_here:open_backend"
    values["sim"] = f"{here}:burst"
    points = [metadata.EntryPoint(name, value, registry.ENTRY_POINTS) for name, value in values.items()]
    monkeypatch.setattr(metadata, "entry_points", lambda *, group: [point for point in points if point.group == group])


def test_our_own_kinds_open_and_are_not_taken_by_others() -> None:
    assert registry.open("sim", {"fleet": "small"}, FakeClock()).name == "sim"
    assert registry.open("paths", {"devices": []}, FakeClock()).name == "paths"


def test_a_backend_of_others_gets_its_options_and_the_clock() -> None:
    clock = FakeClock()
    backend = registry.open("Foreign", {"a": 1}, clock)
    assert isinstance(backend, Foreign)
    assert (backend.options, backend.clock) == ({"a": 1}, clock)


def test_every_kind_is_listed_once() -> None:
    kinds = [kind for kind in registry.kinds() if kind != "drill"]  # the campaign's, if it ran in this process
    own = {"amd", "nvidia", "paths", "sim"}
    assert kinds == sorted({"Foreign", "absent", "broken", "burst", "leave", "nothing", "refuse"} | own)


def test_an_unknown_kind_is_refused_with_a_guess_and_the_list() -> None:
    with pytest.raises(UsageError, match=r"no backend of the kind 'path'; did you mean 'paths'\? Known: .*paths.*sim"):
        registry.open("path", {}, FakeClock())


def test_a_kind_that_two_packages_have_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    twice = [metadata.EntryPoint("leds", f"{package}:open_backend", registry.ENTRY_POINTS) for package in "ab"]
    monkeypatch.setattr(metadata, "entry_points", lambda *, group: twice)
    with pytest.raises(UsageError, match="several packages have a backend of the kind 'leds': a:open_backend, b:open"):
        registry.open("leds", {}, FakeClock())


def test_a_mistake_in_the_options_comes_through() -> None:
    with pytest.raises(ConfigError):
        registry.open("refuse", {}, FakeClock())


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("broken", r"backend 'broken' \(no_such_package_here:open_backend\) could not be loaded: ModuleNotFoundError"),
        ("absent", r"backend 'absent' .* could not be loaded: AttributeError"),
        ("burst", "backend 'burst' could not be opened: RuntimeError: boom"),
        ("leave", "backend 'leave' could not be opened: SystemExit: 3"),
        ("nothing", r"backend 'nothing' gave a object, which has no name or no discover\(\)"),
    ],
)
def test_a_backend_that_does_not_open_is_named(kind: str, message: str) -> None:
    with pytest.raises(BackendError, match=message):
        registry.open(kind, {}, FakeClock())


def test_opening_a_simulated_fleet_loads_nothing_it_does_not_need() -> None:
    code = (
        "import sys; from fairlead.backends import registry; from fairlead.kit.clock import SystemClock\n"
        "import fairlead.backends.sim; assert 'yaml' not in sys.modules\n"
        "registry.open('sim', {'fleet': {'devices': [{}]}}, SystemClock())\n"
        "print([name for name in ('yaml', 'difflib', 'importlib.metadata', 'importlib.resources', 'asyncinotify')"
        " if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

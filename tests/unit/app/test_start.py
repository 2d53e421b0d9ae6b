"""What is loaded when, and what the collector keeps.

Each question is asked in an interpreter of its own: this one has everything loaded.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys

import pytest

from fairlead.app.start import later_for, settle_memory
from fairlead.config.load import build

CLOSEST = "fairlead.policy.placement.closest"
BEGIN = "import sys\nfrom fairlead.app.start import load_libraries\nload_libraries()\n"


def run(code: str) -> str:
    env = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}  # it loads much
    done = subprocess.run([sys.executable, "-c", BEGIN + code], capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_what_libraries_import_in_passing_is_not_loaded():
    assert run("print({'ssl', 'typing_extensions'} & sys.modules.keys() or 'nothing')") == "nothing"


def test_what_was_kept_from_asyncio_can_be_imported_afterwards():
    assert run("import ssl\nprint(ssl.create_default_context().check_hostname)") == "True"


def test_errors_need_no_module_that_is_not_loaded_yet():
    """A module is a file, and a process may have no descriptor left for one when it needs it most."""
    code = """
import asyncio, fairlead.app.daemon, fairlead.backends.sim.backend
from fairlead.app.start import load_rest
load_rest()
before = set(sys.modules)
from fairlead.app import questions
from fairlead.kit.decoding import did_you_mean
from fairlead.fronts.podresources import read_holdings
from pathlib import Path
did_you_mean('satus', ['status'])
class Loop(asyncio.SelectorEventLoop): pass
async def main():
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda *_: None)
    loop.call_soon(lambda: 1 / 0)
    await asyncio.to_thread(print, end='')
    print(type(await read_holdings(Path(sys.executable))).__name__)
asyncio.run(main())
try:
    1 / 0
except ZeroDivisionError as error:
    import logging
    logging.getLogger('asyncio').error('as asyncio does', exc_info=error)
print(sorted(name for name in sys.modules.keys() - before) or 'nothing')
"""
    assert run(code).splitlines() == ["Unknown", "nothing"]


@pytest.mark.parametrize(("placement", "needed"), [("aligned", []), ("closest", [CLOSEST])])
def test_a_placement_that_few_rules_have_is_loaded_for_them_alone(placement: str, needed: list[str]):
    rule = {"resource": "example.com/gpu", "placement": placement}
    assert list(later_for(build({"backends": [{"kind": "sim"}], "rules": [rule]}, "test"))) == needed


def test_only_what_is_there_at_the_first_start_is_kept_from_the_collector():
    gc.unfreeze()
    try:
        settle_memory()
        kept = gc.get_freeze_count()
        later = [{"made": "by a reload"} for _ in range(100)]
        settle_memory()
        assert kept
        assert gc.get_freeze_count() <= kept
        assert later
    finally:
        gc.unfreeze()

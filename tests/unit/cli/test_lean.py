"""A daemon loads little. Each question is asked in an interpreter of its own: this one has everything loaded."""

from __future__ import annotations

import os
import subprocess
import sys

BEGIN = """
import sys, threading
from fairlead.cli import lean
lean.load()
postponed = lambda: {name for name, module in sys.modules.items() if type(module) is lean.Postponed}
"""


def run(code: str) -> str:
    env = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}  # it loads much
    done = subprocess.run([sys.executable, "-c", BEGIN + code], capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_what_libraries_import_in_passing_is_not_loaded():
    assert run("print({'ssl', 'ast', 'dis', 'tokenize'} & sys.modules.keys() or 'nothing')") == "nothing"


def test_the_daemon_on_nvidia_gpus_uses_nothing_that_is_postponed():
    code = """
before = postponed()
import fairlead.cli.nvidia, fairlead.dialects.nvidia.meaning, fairlead.app.daemon, fairlead.backends.nvidia.backend
import asyncio
asyncio.run(asyncio.sleep(0))
print(before - postponed() or 'nothing', len(before) > 0)
"""
    assert run(code) == "nothing True"


def test_a_postponed_module_is_whole_when_it_is_used():
    code = """
import inspect, msgspec
print(inspect.isfunction(run := lambda: 0), inspect.getdoc(inspect.getdoc)[:3], msgspec.inspect.type_info(int).gt)
print('inspect' in postponed(), type(inspect).__name__)
"""
    assert run(code).splitlines() == ["True Get None", "False module"]


def test_words_that_were_given_in_advance_mean_what_they_mean():
    code = """
import concurrent.futures, inspect, platform, subprocess, urllib.parse, functools, traceback
given = {name: dict(words) for name, words in lean.LATER.items() if words}
async def coroutine(): pass
class Thing:
    async def method(self): pass
    def plain(self): pass
samples = [coroutine, Thing().method, Thing().plain, functools.partial(coroutine), functools.partial(Thing), len, Thing]
ours = [lean.is_coroutine_function(each) for each in samples]
stack = traceback.extract_stack()
quoted = urllib.parse.quote_from_bytes(b'a b')
for name in given:
    lean._fill(sys.modules[name])
same = [given[name][word] == getattr(sys.modules[name], word) for name in given for word in given[name]
        if not callable(given[name][word])]
print(len(same) > 5, set(same), given['platform']['system']() == platform.system(), quoted)
print(ours == [inspect.iscoroutinefunction(each) for each in samples], stack[0].name)
print(postponed() & given.keys() or 'nothing')
"""
    assert run(code).splitlines() == ["True {True} True a%20b", "True <module>", "nothing"]


def test_what_asyncio_logs_is_logged():
    code = """
import asyncio, logging
from asyncio.log import logger
logger.debug('nobody listens')
print('logging' in postponed())
logging.basicConfig(stream=sys.stdout, format='%(name)s: %(message)s', level=logging.DEBUG)
logger.debug('somebody does')
logger.error('this is wrong')
print(asyncio.run(asyncio.to_thread(lambda: 5)))
"""
    assert run(code).splitlines() == [
        "True",
        "asyncio: somebody does",
        "asyncio: this is wrong",
        "asyncio: Using selector: EpollSelector",
        "5",
    ]


def test_threads_that_use_it_at_once_all_get_it_whole():
    code = """
import inspect
gate, seen = threading.Barrier(8), []
def use():
    gate.wait()
    seen.append(inspect.unwrap is not None and inspect.Signature is not None)
threads = [threading.Thread(target=use) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(seen.count(True))
"""
    assert run(code) == "8"


def test_what_it_does_not_have_is_an_attribute_error():
    assert run("import textwrap\nprint(hasattr(textwrap, 'nothing'), hasattr(textwrap, 'dedent'))") == "False True"


def test_what_is_imported_afterwards_is_not_postponed():
    assert run("import statistics, locale\nimport calendar\nprint(type(statistics).__name__)") == "module"

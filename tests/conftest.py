"""Fixtures shared by all tests. Property tests are judged by their outcome alone: a busy machine is no failure."""

import os
import signal

from hypothesis import settings

pytest_plugins = ["fairlead.testing"]

settings.register_profile("untimed", deadline=None, max_examples=int(os.environ.get("TEST_EXAMPLES", "100")))
settings.load_profile("untimed")

# A shell starts background jobs with SIGINT ignored, nohup with SIGHUP, and every child would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

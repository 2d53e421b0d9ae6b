"""Fixtures shared by all tests. Property tests are judged by their outcome alone: a busy machine is no failure."""

from hypothesis import settings

pytest_plugins = ["fairlead.testing"]

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

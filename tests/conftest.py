"""Fixtures shared by all tests."""

pytest_plugins = ["fairlead.testing"]

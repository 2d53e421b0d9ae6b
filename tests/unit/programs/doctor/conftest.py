"""A fake API server for the tests of what is read from the cluster."""

from __future__ import annotations

from tests.apiserver.fixtures import client, quick, server

__all__ = ["client", "quick", "server"]

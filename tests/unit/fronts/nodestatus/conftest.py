"""A fake API server for each test, and a client of it."""

from __future__ import annotations

from tests.apiserver.fixtures import client, patient, quick, server

__all__ = ["client", "patient", "quick", "server"]

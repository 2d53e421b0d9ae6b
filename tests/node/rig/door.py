"""The way from pods to the API server, which listens on loopback: the address of its Service, while the door is open.

A cluster has a proxy for that. Here the machine takes the address, and a relay stands behind it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.node.relay import Relay
from tests.node.rig.places import API_IN_PODS, ports
from tests.node.rig.steps import NodeFailedError

PORT = 443  # of the Service


@contextmanager
def to_api_server() -> Iterator[None]:
    _ip("add")
    try:
        relay = Relay(ports().api, (API_IN_PODS, PORT))
        try:
            yield
        finally:
            relay.close()
    finally:
        remove_address()


def has_address() -> bool:
    """Whether the machine has it. The kernel lists the addresses that are its own."""
    return f"{API_IN_PODS}\n" in "".join(f"{word}\n" for word in Path("/proc/net/fib_trie").read_text().split())


def remove_address() -> None:
    if has_address():
        _ip("del")


def _ip(word: str) -> None:
    command = ["ip", "address", word, f"{API_IN_PODS}/32", "dev", "lo"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NodeFailedError(f"{' '.join(command)}: {done.stderr.strip()}")

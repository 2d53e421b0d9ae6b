"""What can go wrong, in the kubelet's own words.

Owns the exceptions and the Go spelling of a gRPC status. Opens no socket.
"""

import errno
import os
import re
from pathlib import Path

import grpc

_DIAL_ERRORS = tuple(os.strerror(code) for code in (errno.ENOENT, errno.ECONNREFUSED, errno.EACCES))
_TOO_LARGE = re.compile(r"CLIENT: Received message larger than max (\(\d+ vs\. \d+\))")


class KubeletPanicked(Exception):
    """The real kubelet would have crashed here. The stand-in has stopped."""


class Rejected(Exception):
    """A request the kubelet turns down, with its text."""

    code = grpc.StatusCode.UNKNOWN


class RateLimited(Rejected):
    """Too many requests to the pod-resources service."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED


class CallFailed(Exception):
    """A call to a plugin ended with a status. Reads as the kubelet's log prints it."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(f"rpc error: code = {_go_name(code)} desc = {details}")
        self.code = code
        self.details = details


def _go_name(code: grpc.StatusCode) -> str:
    """`DEADLINE_EXCEEDED` is DeadlineExceeded there; only CANCELLED is spelt another way."""
    return "Canceled" if code is grpc.StatusCode.CANCELLED else code.name.title().replace("_", "")


def go_text(details: str, path: Path) -> str:
    """The library's own words as Go's library has them. Other texts come from the plugin and stay."""
    if (sizes := _TOO_LARGE.search(details)) is not None:
        return f"grpc: received message larger than max {sizes[1]}"
    if not details.startswith("failed to connect to all addresses"):
        return details
    reason = next((text for text in _DIAL_ERRORS if text in details), details)
    return f'connection error: desc = "transport: Error while dialing: dial unix {path}: connect: {reason.lower()}"'

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
_GO_CODES = {
    grpc.StatusCode.CANCELLED: "Canceled",
    grpc.StatusCode.UNKNOWN: "Unknown",
    grpc.StatusCode.INVALID_ARGUMENT: "InvalidArgument",
    grpc.StatusCode.DEADLINE_EXCEEDED: "DeadlineExceeded",
    grpc.StatusCode.NOT_FOUND: "NotFound",
    grpc.StatusCode.ALREADY_EXISTS: "AlreadyExists",
    grpc.StatusCode.PERMISSION_DENIED: "PermissionDenied",
    grpc.StatusCode.UNAUTHENTICATED: "Unauthenticated",
    grpc.StatusCode.RESOURCE_EXHAUSTED: "ResourceExhausted",
    grpc.StatusCode.FAILED_PRECONDITION: "FailedPrecondition",
    grpc.StatusCode.ABORTED: "Aborted",
    grpc.StatusCode.UNIMPLEMENTED: "Unimplemented",
    grpc.StatusCode.OUT_OF_RANGE: "OutOfRange",
    grpc.StatusCode.INTERNAL: "Internal",
    grpc.StatusCode.UNAVAILABLE: "Unavailable",
    grpc.StatusCode.DATA_LOSS: "DataLoss",
}


class KubeletPanicked(Exception):
    """The real kubelet would have crashed here. The stand-in has stopped."""


class Rejected(Exception):
    """A request the kubelet turns down, with its text."""


class CallFailed(Exception):
    """A call to a plugin ended with a status. Reads as the kubelet's log prints it."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(f"rpc error: code = {_GO_CODES.get(code, code.name)} desc = {details}")
        self.code = code
        self.details = details


def in_go(details: str, path: Path) -> str:
    """The library's own words as Go's library has them. Other texts come from the plugin and stay."""
    if (sizes := _TOO_LARGE.search(details)) is not None:
        return f"grpc: received message larger than max {sizes[1]}"
    if not details.startswith("failed to connect to all addresses"):
        return details
    reason = next((text for text in _DIAL_ERRORS if text in details), details)
    return f'connection error: desc = "transport: Error while dialing: dial unix {path}: connect: {reason.lower()}"'

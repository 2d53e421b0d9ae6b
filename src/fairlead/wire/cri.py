"""What is asked of a container runtime: its version. A part of `runtime.v1.RuntimeService`, Kubernetes' CRI."""

from __future__ import annotations

from fairlead.wire.method import Method
from fairlead.wire.proto import field, message


@message
class VersionRequest:
    pass


@message
class VersionResponse:
    runtime_name: str = field(2)
    runtime_version: str = field(3)


VERSION = Method("/runtime.v1.RuntimeService/Version", VersionRequest, VersionResponse)

"""A kubelet small enough to embed and faithful enough to trust.

It speaks to device plugins over real sockets with another gRPC than Fairlead's own, so that every test that uses it
is also a test of interoperability. It imports nothing of Fairlead outside this room.
"""

import fairlead.standin._grpcio  # noqa: F401 - acts before gRPC is loaded
from fairlead.standin.calls import Call
from fairlead.standin.clock import Clock, FakeClock, SystemClock, Timings
from fairlead.standin.errors import KubeletPanicked
from fairlead.standin.faults import Callbacks, Defects, Faults
from fairlead.standin.kubelet import Kubelet, Node
from fairlead.standin.poddevices import DeviceNode, Mount
from fairlead.standin.pods import Container, Pod

__all__ = [
    "Call",
    "Callbacks",
    "Clock",
    "Container",
    "Defects",
    "DeviceNode",
    "FakeClock",
    "Faults",
    "Kubelet",
    "KubeletPanicked",
    "Mount",
    "Node",
    "Pod",
    "SystemClock",
    "Timings",
]

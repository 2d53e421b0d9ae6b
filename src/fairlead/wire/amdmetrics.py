"""The service of AMD's metrics exporter, as far as it tells of health. Field numbers are those of its `metricssvc`."""

from __future__ import annotations

from fairlead.wire.method import Method
from fairlead.wire.proto import field, message


@message
class Empty:
    pass


@message
class GpuState:
    id: str = field(1)
    uuid: str = field(2)
    health: str = field(3)
    associated_workload: tuple[str, ...] = field(4)
    device: str = field(5)


@message
class GpuStates:
    gpu_state: tuple[GpuState, ...] = field(1)


LIST = Method("/metricssvc.MetricsService/List", Empty, GpuStates)

"""What control daemons serve, and how their clients are limited."""

from __future__ import annotations

import pytest

from fairlead.backends.nvidia.mps.daemonspec import make_daemon_specs, most_clients
from fairlead.backends.nvidia.spec import Mps
from fairlead.model.device import Device
from fairlead.model.errors import BackendError
from fairlead.model.names import DeviceId

GIB = 1024**3


def gpu(index: int, memory_bytes: int = 16 * GIB, cc: str = "7.5", model: str = "NVIDIA T4") -> Device:
    attributes = {"kind": "gpu", "computeCapability": cc}
    return Device(DeviceId(f"GPU-{index}"), str(index), memory_bytes=memory_bytes, model=model, attributes=attributes)


def shared(**replicas: int) -> Mps:
    return Mps(root="/mps", replicas={f"nvidia.com/{name}": count for name, count in replicas.items()})


def test_memory_and_threads_are_divided_among_the_replicas() -> None:
    (spec,) = make_daemon_specs(shared(gpu=4), [gpu(0), gpu(1, 24 * GIB)])
    assert spec.gpus == ("GPU-0", "GPU-1")
    assert spec.limits == (
        "set_default_device_pinned_mem_limit 0 4096M",
        "set_default_device_pinned_mem_limit 1 6144M",
        "set_default_active_thread_percentage 25",
    )
    assert spec.environment == {
        "CUDA_MPS_PIPE_DIRECTORY": "/mps/nvidia.com/gpu/pipe",
        "CUDA_MPS_LOG_DIRECTORY": "/mps/nvidia.com/gpu/log",
    }
    assert spec.started == "/mps/nvidia.com/gpu/.started"


def test_what_does_not_divide_is_rounded_down() -> None:
    (spec,) = make_daemon_specs(shared(gpu=3), [gpu(0)])
    assert spec.limits == (
        "set_default_device_pinned_mem_limit 0 5461M",
        "set_default_active_thread_percentage 33",
    )


def test_a_gpu_of_unknown_memory_has_no_limit_of_memory() -> None:
    (spec,) = make_daemon_specs(shared(gpu=2), [gpu(0, 0)])
    assert spec.limits == ("set_default_active_thread_percentage 50",)


def test_no_daemon_without_replicas_or_without_gpus() -> None:
    assert make_daemon_specs(shared(gpu=1), [gpu(0)]) == ()
    assert make_daemon_specs(shared(gpu=2), []) == ()
    assert make_daemon_specs(Mps(), [gpu(0)]) == ()


@pytest.mark.parametrize(
    ("capability", "most"),
    [("7.0", 16), ("7.5", 48), ("v7.5", 48), ("9.0", 48), ("12.0", 48), ("6.1", 16), ("", 16), ("0.0", 16), ("x", 16)],
)
def test_older_gpus_have_fewer_clients(capability: str, most: int) -> None:
    assert most_clients(capability) == most
    (spec,) = make_daemon_specs(shared(gpu=most), [gpu(0, cc=capability)])
    assert spec.problems == ()
    (spec,) = make_daemon_specs(shared(gpu=most + 1), [gpu(0, cc=capability)])
    (problem,) = spec.problems
    assert "invalid device maximum allowed replicas exceeded" in problem
    assert problem.endswith(f"{most + 1} > {most} (GPU-0, NVIDIA T4). Use {most} or fewer replicas")


def test_mig_instances_are_refused() -> None:
    instance = Device(DeviceId("MIG-1"), "0:0", parent=DeviceId("GPU-0"), attributes={"kind": "mig"})
    with pytest.raises(BackendError, match="sharing using MPS is not supported for MIG devices"):
        make_daemon_specs(shared(gpu=2), [instance])


def test_two_resources_share_the_gpus_that_they_name() -> None:
    mps = Mps(
        root="/mps",
        replicas={"nvidia.com/small": 2, "nvidia.com/large": 4},
        devices={"nvidia.com/small": ("0", "GPU-1"), "nvidia.com/large": ("*H100*",)},
    )
    specs = make_daemon_specs(mps, [gpu(0), gpu(1), gpu(2, model="NVIDIA H100 80GB HBM3")])
    assert [(spec.resource, spec.gpus) for spec in specs] == [
        ("nvidia.com/small", ("GPU-0", "GPU-1")),
        ("nvidia.com/large", ("GPU-2",)),
    ]


def test_one_gpu_cannot_have_two_daemons() -> None:
    with pytest.raises(BackendError, match=r"GPU-0 would be shared as nvidia\.com/a and as nvidia\.com/b"):
        make_daemon_specs(shared(a=2, b=2), [gpu(0)])

"""Asks NVIDIA's driver, once, what it knows of its GPUs: rows, MIG instances, the fabric, events. Blocking."""

from __future__ import annotations

from fairlead.backends.nvidia.driver import Driver
from fairlead.backends.nvidia.errors import DriverAbsent, GpusFailed, NvmlError
from fairlead.backends.nvidia.events import Events
from fairlead.backends.nvidia.snapshot import Gpu, Platform
from fairlead.backends.nvidia.spec import Options
from fairlead.model.errors import BackendError
from fairlead.programs.doctor.facts import GpuFacts, Missing, NvmlFacts, NvmlFailure

LIBRARY = "NVIDIA's driver library"  # how `backends.nvidia.errors` begins when it was not found, or not loaded
FABRIC_READY = {0: "", 3: ""}  # not supported; completed
FABRIC_STATES = {1: "not started", 2: "in progress"}


def read_nvml(options: Options) -> NvmlFacts | NvmlFailure | Missing:
    driver = Driver(options)
    try:
        found = driver.snapshot()
        if found.platform is not Platform.NVML:
            return Missing(f"NVML tells nothing of GPUs on this kind of host ({found.platform})")
        return NvmlFacts(tuple(_gpu(driver, gpu) for gpu in found.gpus), found.problems, _deaf(driver))
    except DriverAbsent as error:
        return NvmlFailure(str(error), library=error.what.startswith(LIBRARY))
    except GpusFailed as error:
        return NvmlFacts(problems=error.problems)
    except BackendError as error:
        return NvmlFailure(str(error))
    finally:
        driver.end_session()


def _gpu(driver: Driver, gpu: Gpu) -> GpuFacts:
    pending, failed = driver.rows(gpu.uuid) or (False, False)
    return GpuFacts(
        gpu.uuid,
        gpu.index,
        gpu.minor,
        gpu.bus_id,
        pending,
        failed,
        gpu.mig_enabled,
        tuple(mig.profile for mig in gpu.migs),
        tuple(path for mig in gpu.migs for path in mig.cap_paths),
        _fabric(driver, gpu.uuid),
    )


def _fabric(driver: Driver, uuid: str) -> str:
    if driver.nvml is None or uuid not in driver.handles:
        return ""
    try:
        state = int(driver.nvml.fabric(driver.handles[uuid]).state)
    except NvmlError:  # a driver, or a GPU, without one
        return ""
    return FABRIC_READY.get(state, FABRIC_STATES.get(state, f"state {state}"))


def _deaf(driver: Driver) -> tuple[str, ...]:
    """What is wrong with the events of GPUs."""
    if driver.nvml is None or not driver.handles:
        return ()
    events = Events()
    try:
        return events.open(driver.nvml, driver.handles)
    except NvmlError as error:
        return (f"no GPU can be listened to: {error}",)
    finally:
        events.close()

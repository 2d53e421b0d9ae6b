"""What can go wrong with NVIDIA's driver, with what to do."""

from __future__ import annotations

from collections.abc import Iterable

from fairlead.model.errors import BackendError, NotYet


class NvmlError(BackendError):
    """A function of the driver's library said no."""

    def __init__(self, function: str, code: int, text: str) -> None:
        super().__init__(f"{function}: {text} (NVML error {code})")
        self.function, self.code, self.text = function, code, text


class DriverAbsent(NotYet):
    """No driver to ask: its library, its kernel module or its devices are not there, or do not fit each other."""

    def __init__(self, what: str, help: str) -> None:  # noqa: A002 - it is the help
        super().__init__(f"{what}. {help}")
        self.what, self.help = what, help


class MigMismatch(BackendError):
    """GPUs that `mig: single` cannot show as one kind of device."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}. Cut all GPUs in the same way, or use mig: mixed")
        self.what = what


class MpsNotReady(BackendError):
    """A control daemon that another container runs does not answer. It is asked again."""


class GpusFailed(BackendError):
    """There are GPUs, and not one of them could be read."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("no GPU could be read: " + "; ".join(self.problems))


def library_missing(name: str, tried: Iterable[str]) -> DriverAbsent:
    return DriverAbsent(
        f"NVIDIA's driver library {name} was not found: {'; '.join(tried)}",
        "Install the driver on the host and let this container see it: through NVIDIA's container runtime, or with the "
        "driver's root directory mounted and named as driverRootMount. On a node without NVIDIA GPUs: do not run here",
    )


def library_broken(tried: Iterable[str]) -> DriverAbsent:
    return DriverAbsent(
        f"NVIDIA's driver library is there but cannot be loaded: {'; '.join(tried)}",
        "It must be of this machine's architecture, and complete",
    )


def init_failed(error: NvmlError) -> DriverAbsent:
    return DriverAbsent(f"the driver does not start: {error}", _INIT_HELP.get(error.code, _INIT_ELSE))


_INIT_HELP = {
    4: "This container may not open the GPUs: run it with NVIDIA's container runtime, or privileged",
    9: "The kernel module nvidia is not loaded: install the driver or load the module (modprobe nvidia)",
    17: "Look into the kernel's log (dmesg) for lines with NVRM",
    18: "The library and the kernel module are of different versions, as after an upgrade: "
    "reload the module or restart the node",
}
_INIT_ELSE = "Run nvidia-smi on the host: it must work first"

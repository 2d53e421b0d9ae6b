"""What people may write: where the host is, what containers get, and which checks say that a device is ill."""

# Annotations are objects here, not text: text would be evaluated at each start (docs/decisions/0008-speed.md).
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any

import msgspec

from fairlead.kit.decoding import Seconds

EXPORTER_SOCKET = "/var/lib/amd-metrics-exporter/amdgpu_device_metrics_exporter_grpc.socket"
POLL_MIN_S = 1.0


class DeviceListStrategy(StrEnum):
    """How the container runtime learns which devices a container gets."""

    NODES = "nodes"
    CDI_ANNOTATIONS = "cdi-annotations"
    CDI_CRI = "cdi-cri"


class Check(StrEnum):
    KFD = "kfd"
    NODES = "nodes"
    RAS = "ras"
    EXPORTER = "exporter"


def _doc(text: str, *examples: Any) -> msgspec.Meta:
    return msgspec.Meta(description=text, examples=list(examples) or None)


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel", omit_defaults=True):
    pass


class Cdi(_Part, frozen=True):
    directory: Annotated[str, _doc("Where container runtimes look for specs.")] = "/var/run/cdi"
    vendor: Annotated[str, _doc("The vendor in all names; the class is gpu.")] = "amd.com"
    annotation_prefix: Annotated[str, _doc("In front of the annotation of cdi-annotations.")] = "cdi.k8s.io/"


class Health(_Part, frozen=True):
    checks: Annotated[
        tuple[Check, ...],
        _doc(
            "What is asked at each probe. kfd: the kernel's compute driver knows the device. nodes: its nodes in /dev "
            "are there. ras: counters of uncorrectable errors. exporter: AMD's metrics exporter, where it runs.",
            ["kfd", "nodes"],
        ),
    ] = tuple(Check)
    tolerated: Annotated[
        dict[str, Annotated[int, msgspec.Meta(ge=0)]],
        _doc("Uncorrectable errors that a device may have had, by the block that counts them.", {"umc": 2}),
    ] = {}
    exporter: Annotated[str, _doc("The socket of AMD's metrics exporter, in the plugin's own view.")] = EXPORTER_SOCKET


class Options(_Part, frozen=True):
    host_root: Annotated[str, _doc("Below it are /sys and /dev, in the plugin's own view.")] = "/"
    dev_root: Annotated[str, _doc("Below it is /dev, on the host. Empty: the host's own.")] = ""
    ways: Annotated[
        tuple[DeviceListStrategy, ...],
        _doc(
            "How the container runtime learns the devices of a container; several ways at once if need be.",
            ["cdi-cri"],
        ),
    ] = (DeviceListStrategy.NODES,)
    cdi: Annotated[Cdi, _doc("CDI specs, where a way needs them.")] = Cdi()
    health: Annotated[Health, _doc("Which faults count.")] = Health()
    poll: Annotated[Seconds, _doc("How often changes are looked for: sysfs gives no notice of them.")] = Seconds(5)
    deadline: Annotated[Seconds, _doc("For one look at all devices.")] = Seconds(20)


def find_faults(options: Options) -> Iterator[str]:
    """What the types cannot say."""
    for key, path in (
        ("hostRoot", options.host_root),
        ("devRoot", options.dev_root or "/"),
        ("cdi.directory", options.cdi.directory),
        ("health.exporter", options.health.exporter),
    ):
        if not path.startswith("/") or ".." in path.split("/") or "\0" in path:
            yield f"{key}: {path!r} is not an absolute path without '..'"
    if options.cdi.vendor != Cdi().vendor:
        from fairlead.inject.cdi import vendor_problem  # noqa: PLC0415 - most nodes have no CDI specs

        if problem := vendor_problem(options.cdi.vendor):
            yield f"cdi.vendor: {problem}"
    if not options.ways:
        yield "ways: give at least one"
    if options.poll < POLL_MIN_S:
        yield f"poll: {options.poll:g} s is too often; give 1s or more"

"""NVML: the functions of the driver's library that we call, and no more. The only module that knows ctypes.

Blocking, and not for the loop: calls belong on an owner thread. Handles are good until the session that gave them ends.
Strings are text, errors are NvmlError. Why not nvidia-ml-py: docs/decisions/0006-nvml-binding.md.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Container
from ctypes import byref, c_char, c_int, c_longlong, c_uint, c_ulonglong, c_void_p
from typing import Any, ClassVar, NamedTuple, NewType, TypeVar

from fairlead.backends.nvidia.errors import NvmlError
from fairlead.backends.nvidia.snapshot import MigAttributes

Handle = NewType("Handle", int)  # of a GPU or a MIG instance
EventSet = NewType("EventSet", int)
A = TypeVar("A", bound="ctypes._CData")  # noqa: SLF001 - what byref takes; ctypes has no public name for it
R = TypeVar("R")
S = TypeVar("S", bound=ctypes.Structure)

INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND, TIMEOUT = 2, 3, 6, 10
FUNCTION_NOT_FOUND, GPU_IS_LOST, RESET_REQUIRED, UNKNOWN = 13, 15, 16, 999
_ABSENT = frozenset({INVALID_ARGUMENT, NOT_SUPPORTED, FUNCTION_NOT_FOUND})  # this GPU has no such thing

DOUBLE_BIT, XID, UNAVAILABLE = 0x2, 0x8, 0x4000  # kinds of events
NO_INSTANCE = 0xFFFFFFFF
GI_PROFILES, CI_PROFILES, ENGINE_SHARED = 18, 9, 0
NVLINKS = 36
LINK_TO_SWITCH = 2
ADDRESSING_ATS = 2
RECOVERY_ACTION = 230  # a field: what the driver wants done with the GPU
FABRIC_V2, ADDRESSING_V1 = 0x2000024, 0x1000008  # version and size, as the library checks them

_TEXT = 96
_UUID = 80


def _uints(*names: str) -> list[tuple[str, Any]]:
    return [(name, c_uint) for name in names]


class PciInfo(ctypes.Structure):
    _fields_: ClassVar[Any] = [
        ("busIdLegacy", c_char * 16),
        *_uints("domain", "bus", "device", "pciDeviceId", "pciSubSystemId"),
        ("busId", c_char * 32),
    ]


class Memory(ctypes.Structure):
    _fields_: ClassVar[Any] = [("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong)]


class Utilization(ctypes.Structure):
    _fields_: ClassVar[Any] = _uints("gpu", "memory")


class EventData(ctypes.Structure):
    _fields_: ClassVar[Any] = [
        ("device", c_void_p),
        ("eventType", c_ulonglong),
        ("eventData", c_ulonglong),
        *_uints("gpuInstanceId", "computeInstanceId"),
    ]


class Attributes(ctypes.Structure):
    _fields_: ClassVar[Any] = [
        *_uints("multiprocessorCount", "sharedCopyEngineCount", "sharedDecoderCount", "sharedEncoderCount"),
        *_uints("sharedJpegCount", "sharedOfaCount", "gpuInstanceSliceCount", "computeInstanceSliceCount"),
        ("memorySizeMB", c_ulonglong),
    ]


class Placement(ctypes.Structure):
    _fields_: ClassVar[Any] = _uints("start", "size")


class GpuInstanceInfo(ctypes.Structure):
    _fields_: ClassVar[Any] = [("device", c_void_p), *_uints("id", "profileId"), ("placement", Placement)]


class ComputeInstanceInfo(ctypes.Structure):
    _fields_: ClassVar[Any] = [
        ("device", c_void_p),
        ("gpuInstance", c_void_p),
        *_uints("id", "profileId"),
        ("placement", Placement),
    ]


class GpuInstanceProfile(ctypes.Structure):
    _fields_: ClassVar[Any] = [
        *_uints("id", "isP2pSupported", "sliceCount", "instanceCount", "multiprocessorCount", "copyEngineCount"),
        *_uints("decoderCount", "encoderCount", "jpegCount", "ofaCount"),
        ("memorySizeMB", c_ulonglong),
    ]


class ComputeInstanceProfile(ctypes.Structure):
    _fields_: ClassVar[Any] = [
        *_uints("id", "sliceCount", "instanceCount", "multiprocessorCount", "sharedCopyEngineCount"),
        *_uints("sharedDecoderCount", "sharedEncoderCount", "sharedJpegCount", "sharedOfaCount"),
    ]


class Fabric(ctypes.Structure):
    _fields_: ClassVar[Any] = [
        ("version", c_uint),
        ("clusterUuid", ctypes.c_ubyte * 16),
        *_uints("status", "cliqueId", "state", "healthMask"),
    ]


class Addressing(ctypes.Structure):
    _fields_: ClassVar[Any] = _uints("version", "value")


class FieldValue(ctypes.Structure):
    _fields_: ClassVar[Any] = [
        *_uints("fieldId", "scopeId"),
        ("timestamp", c_longlong),
        ("latencyUsec", c_longlong),
        *_uints("valueType", "nvmlReturn"),
        ("value", c_ulonglong),  # a union of numbers; the small ones are at its start
    ]


class Event(NamedTuple):
    device: Handle
    kind: int
    data: int  # the XID
    gi: int | None
    ci: int | None


class Profile(NamedTuple):
    """How a driver numbers a profile, and what it is."""

    number: int  # NVML's constant
    id: int  # what an instance says of itself
    slices: int
    memory_mib: int


def _get(function: str, answer: type[A], read: Callable[[A], R], *types: Any) -> Callable[..., R]:
    """A method for a function that ends with a pointer to its answer. `types`: of the arguments before it."""

    def call(self: Nvml, *args: Any) -> R:
        found = answer()
        self.call(function, *(kind(arg) for kind, arg in zip(types, args, strict=True)), byref(found))
        return read(found)

    return call


def _get_text(function: str, *types: Any, length: int = _TEXT) -> Callable[..., str]:
    def call(self: Nvml, *args: Any) -> str:
        buffer = ctypes.create_string_buffer(length)
        self.call(function, *(kind(arg) for kind, arg in zip(types, args, strict=True)), buffer, c_uint(length))
        return _decode(buffer.value)

    return call


def _number(found: Any) -> int:
    return found.value or 0


def _handle(found: c_void_p) -> Handle:
    return Handle(found.value or 0)


def _whole(found: S) -> S:
    return found


def _bus_id(found: PciInfo) -> str:
    """As NVML spells it: 00000000:3B:00.0."""
    return _decode(found.busId)


def _decode(raw: bytes) -> str:
    return raw.decode(errors="replace")


class Nvml:
    """One loaded library. `OSError` where it cannot be loaded."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._library = ctypes.CDLL(path)

    # --- The session ----------------------------------------------------------------------------------------------

    def init(self) -> None:
        """Starts a session, or joins the one that others in this process have. Only the first looks for GPUs."""
        self.call("nvmlInit_v2")

    def shutdown(self) -> None:
        self.call("nvmlShutdown")

    driver_version = _get_text("nvmlSystemGetDriverVersion", length=_UUID)
    cuda_version = _get("nvmlSystemGetCudaDriverVersion", c_int, _number)

    # --- GPUs: the first argument is a handle ---------------------------------------------------------------------

    count = _get("nvmlDeviceGetCount_v2", c_uint, _number)
    handle = _get("nvmlDeviceGetHandleByIndex_v2", c_void_p, _handle, c_uint)
    _handle_by_uuid = _get("nvmlDeviceGetHandleByUUID", c_void_p, _handle, ctypes.c_char_p)
    name = _get_text("nvmlDeviceGetName", c_void_p)
    uuid = _get_text("nvmlDeviceGetUUID", c_void_p)
    minor = _get("nvmlDeviceGetMinorNumber", c_uint, _number, c_void_p)
    bus_id = _get("nvmlDeviceGetPciInfo_v3", PciInfo, _bus_id, c_void_p)
    memory_bytes = _get("nvmlDeviceGetMemoryInfo", Memory, lambda found: int(found.total), c_void_p)
    memory_used_bytes = _get("nvmlDeviceGetMemoryInfo", Memory, lambda found: int(found.used), c_void_p)
    utilization = _get("nvmlDeviceGetUtilizationRates", Utilization, lambda found: int(found.gpu), c_void_p)
    # Whether retired memory pages wait for a reset: what older GPUs have in place of rows.
    pages_pending = _get("nvmlDeviceGetRetiredPagesPendingStatus", c_uint, lambda found: found.value == 1, c_void_p)

    def handle_by_uuid(self, uuid: str) -> Handle:
        return self._handle_by_uuid(uuid.encode())

    def compute_capability(self, device: Handle) -> str:
        major, minor = c_int(), c_int()
        self.call("nvmlDeviceGetCudaComputeCapability", c_void_p(device), byref(major), byref(minor))
        return f"{major.value}.{minor.value}"

    def addressing_mode(self, device: Handle) -> int:
        mode = Addressing(version=ADDRESSING_V1)
        self.call("nvmlDeviceGetAddressingMode", c_void_p(device), byref(mode))
        return int(mode.value)

    def fabric(self, device: Handle) -> Fabric:
        info = Fabric(version=FABRIC_V2)
        self.call("nvmlDeviceGetGpuFabricInfoV", c_void_p(device), byref(info))
        return info

    def recovery_action(self, device: Handle) -> int:
        """What the driver wants done: 0 nothing, 1 a reset, 2 a reboot, and so on."""
        field = FieldValue(fieldId=RECOVERY_ACTION)
        self.call("nvmlDeviceGetFieldValues", c_void_p(device), c_int(1), byref(field))
        if field.nvmlReturn:
            raise self._error("nvmlDeviceGetFieldValues", field.nvmlReturn)
        return int(field.value) & 0xFFFFFFFF

    def rows(self, device: Handle) -> tuple[bool, bool]:
        """Of remapped memory rows: whether one waits for a reset, and whether one failed."""
        counts = [c_uint() for _ in range(4)]  # corrected, uncorrected, pending, failed
        self.call("nvmlDeviceGetRemappedRows", c_void_p(device), *map(byref, counts))
        return bool(counts[2].value), bool(counts[3].value)

    # --- MIG ------------------------------------------------------------------------------------------------------

    mig_max = _get("nvmlDeviceGetMaxMigDeviceCount", c_uint, _number, c_void_p)
    gi = _get("nvmlDeviceGetGpuInstanceId", c_uint, _number, c_void_p)
    ci = _get("nvmlDeviceGetComputeInstanceId", c_uint, _number, c_void_p)
    gi_handle = _get("nvmlDeviceGetGpuInstanceById", c_void_p, _handle, c_void_p, c_uint)
    ci_handle = _get("nvmlGpuInstanceGetComputeInstanceById", c_void_p, _handle, c_void_p, c_uint)
    gi_info = _get("nvmlGpuInstanceGetInfo", GpuInstanceInfo, _whole, c_void_p)
    ci_info = _get("nvmlComputeInstanceGetInfo_v2", ComputeInstanceInfo, _whole, c_void_p)
    _mig_handle = _get("nvmlDeviceGetMigDeviceHandleByIndex", c_void_p, _handle, c_void_p, c_uint)
    _attributes = _get("nvmlDeviceGetAttributes_v2", Attributes, _whole, c_void_p)
    _gi_profile = _get("nvmlDeviceGetGpuInstanceProfileInfo", GpuInstanceProfile, _whole, c_void_p, c_uint)
    _ci_profile = _get(
        "nvmlGpuInstanceGetComputeInstanceProfileInfo", ComputeInstanceProfile, _whole, c_void_p, c_uint, c_uint
    )

    def mig_mode(self, device: Handle) -> int | None:
        """1 for on, 0 for off, None where there is no MIG. The pending mode does not count."""

        def read() -> int:
            current, pending = c_uint(), c_uint()
            self.call("nvmlDeviceGetMigMode", c_void_p(device), byref(current), byref(pending))
            return current.value

        return _unless({NOT_SUPPORTED, FUNCTION_NOT_FOUND}, read)

    def mig_handle(self, device: Handle, index: int) -> Handle | None:
        """None for a hole in the numbering."""
        return _unless({NOT_FOUND, INVALID_ARGUMENT}, lambda: self._mig_handle(device, index))

    def mig_attributes(self, mig: Handle) -> MigAttributes:
        found = self._attributes(mig)
        return MigAttributes(
            multiprocessors=found.multiprocessorCount,
            copy_engines=found.sharedCopyEngineCount,
            decoders=found.sharedDecoderCount,
            encoders=found.sharedEncoderCount,
            jpegs=found.sharedJpegCount,
            ofas=found.sharedOfaCount,
            gi_slices=found.gpuInstanceSliceCount,
            ci_slices=found.computeInstanceSliceCount,
            memory_mib=found.memorySizeMB,
        )

    def gi_profile(self, device: Handle, number: int) -> Profile | None:
        """A profile of GPU instances that this GPU can have; None for one that it cannot."""
        found = _unless(_ABSENT, lambda: self._gi_profile(device, number))
        return None if found is None else Profile(number, found.id, found.sliceCount, found.memorySizeMB)

    def ci_profile(self, instance: Handle, number: int) -> Profile | None:
        found = _unless(_ABSENT, lambda: self._ci_profile(instance, number, ENGINE_SHARED))
        return None if found is None else Profile(number, found.id, found.sliceCount, 0)

    # --- Links ----------------------------------------------------------------------------------------------------

    common_ancestor = _get("nvmlDeviceGetTopologyCommonAncestor", c_int, _number, c_void_p, c_void_p)
    nvlink_active = _get("nvmlDeviceGetNvLinkState", c_uint, lambda found: found.value == 1, c_void_p, c_uint)
    # The bus id at the other end, of a GPU or of a switch; and what is there.
    nvlink_remote = _get("nvmlDeviceGetNvLinkRemotePciInfo_v2", PciInfo, _bus_id, c_void_p, c_uint)
    nvlink_remote_kind = _get("nvmlDeviceGetNvLinkRemoteDeviceType", c_uint, _number, c_void_p, c_uint)

    # --- Events ---------------------------------------------------------------------------------------------------

    event_set = _get("nvmlEventSetCreate", c_void_p, lambda found: EventSet(found.value or 0))
    supported_events = _get("nvmlDeviceGetSupportedEventTypes", c_ulonglong, _number, c_void_p)

    def register_events(self, device: Handle, kinds: int, events: EventSet) -> None:
        self.call("nvmlDeviceRegisterEvents", c_void_p(device), c_ulonglong(kinds), c_void_p(events))

    def wait(self, events: EventSet, timeout_ms: int) -> Event | None:
        """The next event; None when there was none in time."""
        found = EventData()
        try:
            self.call("nvmlEventSetWait_v2", c_void_p(events), byref(found), c_uint(timeout_ms))
        except NvmlError as error:
            if error.code == TIMEOUT:
                return None
            raise
        gi = None if found.gpuInstanceId == NO_INSTANCE else found.gpuInstanceId
        ci = None if found.computeInstanceId == NO_INSTANCE else found.computeInstanceId
        return Event(Handle(found.device or 0), found.eventType, found.eventData, gi, ci)

    def free_events(self, events: EventSet) -> None:
        self.call("nvmlEventSetFree", c_void_p(events))

    # --- Calls ----------------------------------------------------------------------------------------------------

    def call(self, name: str, *args: Any) -> None:
        """NvmlError unless it answers 0."""
        try:
            function = getattr(self._library, name)
        except AttributeError:
            # An old library, or none of NVIDIA's.
            raise NvmlError(name, FUNCTION_NOT_FOUND, "the driver's library has no such function") from None
        if code := function(*args):
            raise self._error(name, code)

    def _error(self, name: str, code: int) -> NvmlError:
        try:
            say = self._library.nvmlErrorString
        except AttributeError:
            return NvmlError(name, code, "Unknown Error")
        say.restype = ctypes.c_char_p
        return NvmlError(name, code, _decode(say(c_int(code)) or b"Unknown Error"))


def _unless(codes: Container[int], call: Callable[[], R]) -> R | None:
    """What the call answers; None for these errors."""
    try:
        return call()
    except NvmlError as error:
        if error.code in codes:
            return None
        raise


def can_load(name: str) -> bool:
    """Whether the system's loader finds a library."""
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True

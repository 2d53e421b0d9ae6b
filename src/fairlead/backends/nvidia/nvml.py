"""NVML: the functions of the driver's library that we call, and no more. The only module that knows ctypes.

Blocking, and not for the loop: calls belong on an owner thread. Handles are good until the session that gave them ends.
Strings are text, errors are NvmlError. Why not nvidia-ml-py: docs/decisions/0006-nvml-binding.md.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_char, c_int, c_longlong, c_uint, c_ulonglong, c_void_p
from typing import Any, ClassVar, NamedTuple, NewType, TypeVar

from fairlead.backends.nvidia.errors import NvmlError
from fairlead.backends.nvidia.records import Slice

Handle = NewType("Handle", int)  # of a GPU or a MIG instance
EventSet = NewType("EventSet", int)
S = TypeVar("S", bound=ctypes.Structure)

INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND = 2, 3, 4, 6
UNINITIALIZED, DRIVER_NOT_LOADED, TIMEOUT, FUNCTION_NOT_FOUND = 1, 9, 10, 13
GPU_IS_LOST, RESET_REQUIRED, VERSION_MISMATCH, UNKNOWN = 15, 16, 18, 999

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


class Nvml:
    """One loaded library. `OSError` where it cannot be loaded."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._library = ctypes.CDLL(path)

    # --- The session ----------------------------------------------------------------------------------------------

    def init(self) -> None:
        """Starts a session, or joins the one that others in this process have. Only the first looks for GPUs."""
        self._call("nvmlInit_v2")

    def shutdown(self) -> None:
        self._call("nvmlShutdown")

    def driver_version(self) -> str:
        return self._text("nvmlSystemGetDriverVersion", length=_UUID)

    def cuda_version(self) -> int:
        return self._number("nvmlSystemGetCudaDriverVersion", c_int)

    # --- GPUs -----------------------------------------------------------------------------------------------------

    def count(self) -> int:
        return self._number("nvmlDeviceGetCount_v2")

    def handle(self, index: int) -> Handle:
        return Handle(self._number("nvmlDeviceGetHandleByIndex_v2", c_void_p, c_uint(index)))

    def handle_by_uuid(self, uuid: str) -> Handle:
        return Handle(self._number("nvmlDeviceGetHandleByUUID", c_void_p, ctypes.c_char_p(uuid.encode())))

    def name(self, device: Handle) -> str:
        return self._text("nvmlDeviceGetName", c_void_p(device))

    def uuid(self, device: Handle) -> str:
        return self._text("nvmlDeviceGetUUID", c_void_p(device))

    def minor(self, device: Handle) -> int:
        return self._number("nvmlDeviceGetMinorNumber", c_uint, c_void_p(device))

    def bus_id(self, device: Handle) -> str:
        """As NVML spells it: 00000000:3B:00.0."""
        return _decode(self.pci_info(device).busId)

    def pci_info(self, device: Handle) -> PciInfo:
        return self._struct("nvmlDeviceGetPciInfo_v3", PciInfo, c_void_p(device))

    def memory_bytes(self, device: Handle) -> int:
        total: int = self._struct("nvmlDeviceGetMemoryInfo", Memory, c_void_p(device)).total
        return total

    def compute_capability(self, device: Handle) -> str:
        major, minor = c_int(), c_int()
        self._call("nvmlDeviceGetCudaComputeCapability", c_void_p(device), byref(major), byref(minor))
        return f"{major.value}.{minor.value}"

    def addressing_mode(self, device: Handle) -> int:
        mode = Addressing(version=ADDRESSING_V1)
        self._call("nvmlDeviceGetAddressingMode", c_void_p(device), byref(mode))
        value: int = mode.value
        return value

    def fabric(self, device: Handle) -> Fabric:
        info = Fabric(version=FABRIC_V2)
        self._call("nvmlDeviceGetGpuFabricInfoV", c_void_p(device), byref(info))
        return info

    def recovery_action(self, device: Handle) -> int:
        """What the driver wants done: 0 nothing, 1 a reset, 2 a reboot, and so on."""
        field = FieldValue(fieldId=RECOVERY_ACTION)
        self._call("nvmlDeviceGetFieldValues", c_void_p(device), c_int(1), byref(field))
        if field.nvmlReturn:
            raise self._error("nvmlDeviceGetFieldValues", field.nvmlReturn)
        return int(field.value) & 0xFFFFFFFF

    def rows(self, device: Handle) -> tuple[bool, bool]:
        """Of remapped memory rows: whether one waits for a reset, and whether one failed."""
        counts = [c_uint() for _ in range(4)]  # corrected, uncorrected, pending, failed
        self._call("nvmlDeviceGetRemappedRows", c_void_p(device), *map(byref, counts))
        return bool(counts[2].value), bool(counts[3].value)

    def pages_pending(self, device: Handle) -> bool:
        """Whether retired memory pages wait for a reset: what older GPUs have in place of rows."""
        return self._number("nvmlDeviceGetRetiredPagesPendingStatus", c_uint, c_void_p(device)) == 1

    # --- MIG ------------------------------------------------------------------------------------------------------

    def mig_mode(self, device: Handle) -> int | None:
        """1 for on, 0 for off, None where there is no MIG. The pending mode does not count."""
        current, pending = c_uint(), c_uint()
        try:
            self._call("nvmlDeviceGetMigMode", c_void_p(device), byref(current), byref(pending))
        except NvmlError as error:
            if error.code in {NOT_SUPPORTED, FUNCTION_NOT_FOUND}:
                return None
            raise
        return current.value

    def mig_max(self, device: Handle) -> int:
        return self._number("nvmlDeviceGetMaxMigDeviceCount", c_uint, c_void_p(device))

    def mig_handle(self, device: Handle, index: int) -> Handle | None:
        """None for a hole in the numbering."""
        try:
            found = self._number("nvmlDeviceGetMigDeviceHandleByIndex", c_void_p, c_void_p(device), c_uint(index))
        except NvmlError as error:
            if error.code in {NOT_FOUND, INVALID_ARGUMENT}:
                return None
            raise
        return Handle(found)

    def gi(self, mig: Handle) -> int:
        return self._number("nvmlDeviceGetGpuInstanceId", c_uint, c_void_p(mig))

    def ci(self, mig: Handle) -> int:
        return self._number("nvmlDeviceGetComputeInstanceId", c_uint, c_void_p(mig))

    def slice(self, mig: Handle) -> Slice:
        found = self._struct("nvmlDeviceGetAttributes_v2", Attributes, c_void_p(mig))
        return Slice(
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
        args = c_void_p(device), c_uint(number)
        try:
            found = self._struct("nvmlDeviceGetGpuInstanceProfileInfo", GpuInstanceProfile, *args)
        except NvmlError as error:
            if error.code in {NOT_SUPPORTED, INVALID_ARGUMENT, FUNCTION_NOT_FOUND}:
                return None
            raise
        return Profile(number, found.id, found.sliceCount, found.memorySizeMB)

    def gi_handle(self, device: Handle, gi: int) -> Handle:
        return Handle(self._number("nvmlDeviceGetGpuInstanceById", c_void_p, c_void_p(device), c_uint(gi)))

    def gi_info(self, instance: Handle) -> GpuInstanceInfo:
        return self._struct("nvmlGpuInstanceGetInfo", GpuInstanceInfo, c_void_p(instance))

    def ci_handle(self, instance: Handle, ci: int) -> Handle:
        found = self._number("nvmlGpuInstanceGetComputeInstanceById", c_void_p, c_void_p(instance), c_uint(ci))
        return Handle(found)

    def ci_info(self, compute: Handle) -> ComputeInstanceInfo:
        return self._struct("nvmlComputeInstanceGetInfo_v2", ComputeInstanceInfo, c_void_p(compute))

    def ci_profile(self, instance: Handle, number: int) -> Profile | None:
        args = c_void_p(instance), c_uint(number), c_uint(ENGINE_SHARED)
        try:
            found = self._struct("nvmlGpuInstanceGetComputeInstanceProfileInfo", ComputeInstanceProfile, *args)
        except NvmlError as error:
            if error.code in {NOT_SUPPORTED, INVALID_ARGUMENT, FUNCTION_NOT_FOUND}:
                return None
            raise
        return Profile(number, found.id, found.sliceCount, 0)

    # --- Links ----------------------------------------------------------------------------------------------------

    def common_ancestor(self, one: Handle, other: Handle) -> int:
        return self._number("nvmlDeviceGetTopologyCommonAncestor", c_int, c_void_p(one), c_void_p(other))

    def nvlink_active(self, device: Handle, link: int) -> bool:
        return self._number("nvmlDeviceGetNvLinkState", c_uint, c_void_p(device), c_uint(link)) == 1

    def nvlink_remote(self, device: Handle, link: int) -> str:
        """The bus id at the other end: of a GPU or of a switch."""
        args = c_void_p(device), c_uint(link)
        return _decode(self._struct("nvmlDeviceGetNvLinkRemotePciInfo_v2", PciInfo, *args).busId)

    def nvlink_remote_kind(self, device: Handle, link: int) -> int:
        return self._number("nvmlDeviceGetNvLinkRemoteDeviceType", c_uint, c_void_p(device), c_uint(link))

    # --- Events ---------------------------------------------------------------------------------------------------

    def event_set(self) -> EventSet:
        return EventSet(self._number("nvmlEventSetCreate", c_void_p))

    def supported_events(self, device: Handle) -> int:
        return self._number("nvmlDeviceGetSupportedEventTypes", c_ulonglong, c_void_p(device))

    def register_events(self, device: Handle, kinds: int, events: EventSet) -> None:
        self._call("nvmlDeviceRegisterEvents", c_void_p(device), c_ulonglong(kinds), c_void_p(events))

    def wait(self, events: EventSet, timeout_ms: int) -> Event | None:
        """The next event; None when there was none in time."""
        try:
            found = self._struct("nvmlEventSetWait_v2", EventData, c_void_p(events), after=(c_uint(timeout_ms),))
        except NvmlError as error:
            if error.code == TIMEOUT:
                return None
            raise
        gi = None if found.gpuInstanceId == NO_INSTANCE else found.gpuInstanceId
        ci = None if found.computeInstanceId == NO_INSTANCE else found.computeInstanceId
        return Event(Handle(found.device or 0), found.eventType, found.eventData, gi, ci)

    def free_events(self, events: EventSet) -> None:
        self._call("nvmlEventSetFree", c_void_p(events))

    # --- Calls ----------------------------------------------------------------------------------------------------

    def _call(self, name: str, *args: Any) -> None:
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

    def _struct(self, name: str, kind: type[S], *args: Any, after: tuple[Any, ...] = ()) -> S:
        found = kind()
        self._call(name, *args, byref(found), *after)
        return found

    def _number(self, name: str, kind: Any = c_uint, *args: Any) -> int:
        found = kind()
        self._call(name, *args, byref(found))
        return found.value or 0

    def _text(self, name: str, *args: Any, length: int = _TEXT) -> str:
        buffer = ctypes.create_string_buffer(length)
        self._call(name, *args, buffer, c_uint(length))
        return _decode(buffer.value)


def can_load(name: str) -> bool:
    """Whether the system's loader finds a library."""
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def _decode(raw: bytes) -> str:
    return raw.decode(errors="replace")

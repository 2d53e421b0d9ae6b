"""The fault table: what each report of the driver means, for how long, and for whom. Data and pure functions.

Codes are `xid-<number>` for XIDs and the names below for the rest. Options may change any line.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from fairlead.backends.nvidia import nvml
from fairlead.backends.nvidia.spec import IGNORED_XIDS, Evidence, Fault, Health, Scope
from fairlead.model.health import Cause, CauseKind

_TRANSIENT, _NEEDS_RESET = CauseKind.TRANSIENT, CauseKind.NEEDS_RESET
_XID = "xid-"
_XID_DIGITS = 20  # of the 64 bits that an event has for it

GPU_LOST = "gpu-lost"
RESET_REQUIRED = "reset-required"
ROWS_PENDING = "rows-pending"
ROWS_FAILED = "rows-failed"
DOUBLE_BIT = "ecc-double-bit"
UNAVAILABLE = "gpu-unavailable"
NO_ANSWER = "nvml-error"
HANG = "nvml-hang"


class FaultEntry(Struct, frozen=True):
    kind: CauseKind
    message: str
    hold_s: float | None = None  # None: as for any other fault
    scope: Scope = Scope.INSTANCE  # an event that names an instance is believed
    cured_by: tuple[Evidence, ...] = ()  # empty: clean probes end it after the hold


# The driver shows no "was reset" as such. These change with a reset, and with nothing less.
_RESET = (Evidence.DRIVER, Evidence.PCI, Evidence.ANSWER, Evidence.ACTION)
_MEMORY = (Evidence.ROWS, *_RESET)


def _until_reset(message: str, hold_s: float | None = 300, cured_by: tuple[Evidence, ...] = _RESET) -> FaultEntry:
    return FaultEntry(_NEEDS_RESET, message, hold_s, cured_by=cured_by)


# XIDs that are not ignored withdraw a device at once, as NVIDIA's own plugin does. What differs is the way back: after
# the fault of a program the GPU is good again soon; after one that only a reset ends, it stays away until a reset was
# seen. The six that are ignored by default stand here for those who watch them.
TABLE: Mapping[str, FaultEntry] = {
    "xid-8": FaultEntry(_NEEDS_RESET, "GPU stopped processing"),
    "xid-13": FaultEntry(_NEEDS_RESET, "graphics engine exception"),
    "xid-31": FaultEntry(_NEEDS_RESET, "GPU memory page fault"),
    "xid-32": FaultEntry(_NEEDS_RESET, "invalid or corrupted push buffer stream"),
    "xid-38": _until_reset("driver firmware error"),
    "xid-43": FaultEntry(_NEEDS_RESET, "GPU stopped processing"),
    "xid-45": FaultEntry(_NEEDS_RESET, "preemptive cleanup after earlier errors"),
    "xid-46": _until_reset("GPU stopped processing"),
    "xid-48": _until_reset("double-bit ECC error", cured_by=_MEMORY),
    "xid-61": _until_reset("internal micro-controller breakpoint"),
    "xid-62": _until_reset("internal micro-controller halt"),
    "xid-63": _until_reset("memory row remapping recorded; takes effect at the next reset", None, _MEMORY),
    "xid-64": _until_reset("memory row remapping failed", 600, _MEMORY),
    "xid-68": FaultEntry(_NEEDS_RESET, "video processor exception"),
    "xid-69": FaultEntry(_NEEDS_RESET, "graphics engine class error"),
    "xid-74": _until_reset("NVLink error"),
    "xid-79": _until_reset("GPU has fallen off the bus"),
    "xid-92": FaultEntry(_NEEDS_RESET, "high rate of single-bit ECC errors"),
    "xid-94": FaultEntry(_NEEDS_RESET, "contained memory error"),
    "xid-95": _until_reset("uncontained memory error", cured_by=_MEMORY),
    "xid-109": FaultEntry(_NEEDS_RESET, "context switch timeout"),
    "xid-110": _until_reset("security fault"),
    "xid-119": _until_reset("GSP RPC timeout"),
    "xid-120": _until_reset("GSP error"),
    "xid-121": FaultEntry(_NEEDS_RESET, "chip-to-chip link error"),
    "xid-136": _until_reset("link training failed"),
    "xid-137": FaultEntry(_NEEDS_RESET, "NVLink privilege error"),
    "xid-140": _until_reset("unrecovered ECC error", cured_by=_MEMORY),
    "xid-143": _until_reset("GPU initialization failed"),
    "xid-144": _until_reset("NVLink SAW error"),
    "xid-145": _until_reset("NVLink RLW error"),
    "xid-146": _until_reset("NVLink TLW error"),
    "xid-147": _until_reset("NVLink TREX error"),
    "xid-148": _until_reset("NVLink NVLPW_CTRL error"),
    "xid-149": _until_reset("NVLink NETIR error"),
    "xid-150": _until_reset("NVLink MSE error"),
    "xid-151": _until_reset("key rotation error"),
    "xid-154": _until_reset("the driver asks for a recovery action"),
    "xid-155": _until_reset("NVLink went down"),
    "xid-156": _until_reset("resource retirement recorded", None, _MEMORY),
    "xid-157": _until_reset("resource retirement failed", 600, _MEMORY),
    DOUBLE_BIT: _until_reset("double-bit ECC error", cured_by=_MEMORY),
    UNAVAILABLE: _until_reset("the driver cannot use the GPU"),
    GPU_LOST: FaultEntry(_NEEDS_RESET, "the GPU is lost: it does not answer on the bus"),
    RESET_REQUIRED: FaultEntry(_NEEDS_RESET, "the driver asks for a reset of the GPU"),
    ROWS_PENDING: FaultEntry(_NEEDS_RESET, "memory row remapping waits for a reset of the GPU"),
    ROWS_FAILED: FaultEntry(_NEEDS_RESET, "memory row remapping failed"),
    NO_ANSWER: FaultEntry(_TRANSIENT, "the driver answers for the GPU with an error"),
    HANG: FaultEntry(_TRANSIENT, "the driver does not answer for the GPU"),
}
_OF_EVENTS = {nvml.DOUBLE_BIT: DOUBLE_BIT, nvml.UNAVAILABLE: UNAVAILABLE}
_AS_IT_IS = Fault()
_UNKNOWN_XID = FaultEntry(_NEEDS_RESET, "reported by the driver")


class Faults:
    """The table with what options change in it."""

    def __init__(self, health: Health) -> None:
        self._changed = health.faults
        self._none = health.ignored_xids == "all"
        self._ignored = frozenset(health.ignored_xids if isinstance(health.ignored_xids, tuple) else ())
        self._watched = frozenset(health.watched_xids)
        self._only = None if health.only_xids is None else frozenset(health.only_xids)

    @property
    def watching(self) -> bool:
        """Whether any fault counts."""
        return not self._none or bool(self._watched)

    @property
    def beyond_xids(self) -> bool:
        """Whether faults without an XID count: not where everything was switched off and single XIDs on again."""
        return not self._none

    def ignores(self, xid: int) -> bool:
        if self._only is not None:
            return xid not in self._only
        return xid not in self._watched and (self._none or xid in self._ignored)

    def of_xid(self, xid: int) -> tuple[Cause, Scope]:
        cause, scope = self.of(f"{_XID}{xid}")
        if self.ignores(xid):
            # A fault of the program: noted, and the device is as good as before.
            cause = Cause(cause.code, CauseKind.APPLICATION, cause.message)
        return cause, scope

    def of_event(self, kind: int, data: int) -> tuple[Cause, Scope] | None:
        """None for an event that is harmless or switched off."""
        if kind == nvml.XID:
            return self.of_xid(data)
        code = _OF_EVENTS.get(kind)
        return self.of(code) if code is not None and self.beyond_xids else None

    def of(self, code: str, message: str = "") -> tuple[Cause, Scope]:
        line = TABLE.get(code, _UNKNOWN_XID)
        change = self._changed.get(code, _AS_IT_IS)
        text = change.message or line.message
        kind = change.kind or line.kind
        cured_by = change.cured_by
        if cured_by is None:  # a fault that options make permanent or transient is not ended by a reset
            cured_by = line.cured_by if kind is line.kind else ()
        cause = Cause(
            code,
            kind,
            f"{text}: {message}" if message else text,
            line.hold_s if change.hold is None else change.hold,
            tuple(map(str, cured_by)),
        )
        return cause, change.scope or line.scope


def unknown_codes(codes: Mapping[str, Fault]) -> list[str]:
    """Codes that nothing will ever report."""
    return [code for code in codes if code not in TABLE and not _is_xid(code)]


def xids_from_env(disable: str, enable: str) -> tuple[tuple[int, ...] | str, tuple[int, ...], list[str]]:
    """What DP_DISABLE_HEALTHCHECKS and DP_ENABLE_HEALTHCHECKS mean: the ignored XIDs, those watched all the same, and
    warnings about what was passed over.

    What is enabled wins over what is disabled, also single XIDs over "all".
    """
    warnings: list[str] = []
    off, all_off = _tokens(disable, "DP_DISABLE_HEALTHCHECKS", warnings)
    on, all_on = _tokens(enable, "DP_ENABLE_HEALTHCHECKS", warnings)
    if all_on:
        return (), (), warnings
    if all_off:
        return "all", tuple(sorted(on)), warnings
    return tuple(sorted({*off, *IGNORED_XIDS})), tuple(sorted(on)), warnings


def _tokens(text: str, variable: str, warnings: list[str]) -> tuple[set[int], bool]:
    xids: set[int] = set()
    tokens = [token.strip() for token in text.lower().split(",")]
    if {"all", "xids"} & set(tokens):
        return xids, True
    for token in filter(None, tokens):
        if token.isascii() and token.isdigit() and len(token) <= _XID_DIGITS:
            xids.add(int(token))
        else:
            warnings.append(f"{variable}: {token!r:.80} is not an XID and is passed over")
    return xids, False


def _is_xid(code: str) -> bool:
    number = code.removeprefix(_XID)
    return code.startswith(_XID) and number.isascii() and number.isdigit()

"""The well-known XIDs: what NVIDIA's driver reports, how bad each is, and the message for it."""

from __future__ import annotations

from fairlead.model.health import Cause, CauseKind

_APPLICATION, _TRANSIENT = CauseKind.APPLICATION, CauseKind.TRANSIENT
_NEEDS_RESET, _PERMANENT = CauseKind.NEEDS_RESET, CauseKind.PERMANENT

XIDS: dict[int, tuple[CauseKind, str]] = {
    13: (_APPLICATION, "graphics engine exception"),
    31: (_APPLICATION, "GPU memory page fault"),
    43: (_APPLICATION, "GPU stopped processing"),
    45: (_APPLICATION, "preemptive cleanup after earlier errors"),
    48: (_NEEDS_RESET, "double-bit ECC error"),
    61: (_NEEDS_RESET, "internal micro-controller breakpoint"),
    62: (_NEEDS_RESET, "internal micro-controller halt"),
    63: (_NEEDS_RESET, "memory row remapping recorded; takes effect at the next reset"),
    64: (_NEEDS_RESET, "memory row remapping failed"),
    68: (_APPLICATION, "video processor exception"),
    74: (_NEEDS_RESET, "NVLink error"),
    79: (_PERMANENT, "GPU has fallen off the bus"),
    92: (_TRANSIENT, "high rate of single-bit ECC errors"),
    94: (_TRANSIENT, "contained memory error"),
    95: (_NEEDS_RESET, "uncontained memory error"),
    109: (_APPLICATION, "context switch timeout"),
    119: (_NEEDS_RESET, "GSP RPC timeout"),
    120: (_NEEDS_RESET, "GSP error"),
}


def cause_of(xid: int) -> Cause:
    """An XID outside the table withdraws the device until it is clean: the driver thought it worth reporting."""
    kind, message = XIDS.get(xid, (_NEEDS_RESET, "reported by the driver"))
    return Cause(f"xid-{xid}", kind, message)

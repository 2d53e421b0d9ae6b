"""What Google's plugin reads beside its flags: the GPU config file, the fraction divisor and the list of XIDs.

A part that is wrong is named and left out, as theirs logs it and goes on; the other parts stay. Files are read here,
within bounds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from fairlead.kit import files
from fairlead.kit.decoding import did_you_mean
from fairlead.model.errors import UsageError

STRATEGIES = ("time-sharing", "mps")
CLIENTS_MAX = 65536  # as replicas of a rule
XID_MAX = 2**63 - 1
XIDS_MAX = 1000
ALWAYS_CRITICAL = 48
_INT = re.compile(r"[+-]?[0-9]{1,19}")

# How many instances of a size fill a GPU, which is how many each must have. For A100, H100, H200, B200, GB200 and RTX
# PRO 6000. Google's partition_gpu makes 4g.20gb and 4g.40gb, and its plugin refuses them.
_BY_COUNT = {
    7: "1g.5gb 1g.10gb 1g.18gb 1g.23gb",
    4: "1g.20gb 1g.35gb 1g.45gb 1g.47gb 1g.24gb 1g.24gb+gfx 1g.24gb-me",
    3: "2g.10gb 2g.20gb 2g.35gb 2g.45gb 2g.47gb",
    2: "3g.20gb 3g.40gb 3g.71gb 3g.90gb 3g.93gb 2g.48gb 2g.48gb+gfx 2g.48gb-me",
    1: "4g.20gb 4g.40gb 4g.71gb 4g.90gb 4g.93gb 4g.96gb 4g.96gb+gfx 7g.40gb 7g.80gb 7g.141gb 7g.180gb 7g.186gb "
    "1g.24gb+me 1g.24gb+me.all 2g.48gb+me.all",
}
SIZES: Mapping[str, int] = {size: count for count, sizes in _BY_COUNT.items() for size in sizes.split()}


class Sharing(Struct, frozen=True):
    strategy: str
    clients: int


class GpuConfig(Struct, frozen=True):
    partition_size: str = ""
    sharing: Sharing | None = None
    xids: tuple[int, ...] = ()


class Notes(list[str]):
    """What was left out. `wrong`: not only keys that mean nothing, but something that was meant."""

    wrong = False

    def refuse(self, text: str) -> None:
        self.append(text)
        self.wrong = True


def read_config(path: str) -> tuple[GpuConfig | None, Notes]:
    """The config file, and notes about what was left out. None: there is no file."""
    notes = Notes()
    try:
        text = files.read_text(path)
    except FileNotFoundError:
        return None, notes
    except OSError as error:
        notes.refuse(f"cannot be read: {error.strerror or error}. GPUs are whole and not shared")
        return GpuConfig(), notes
    return parse_config(text)


def parse_config(text: str) -> tuple[GpuConfig, Notes]:
    notes = Notes()
    try:
        raw = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        notes.refuse(f"it is no JSON: {error}. All of it is left out: GPUs are whole and not shared")
        return GpuConfig(), notes
    if not isinstance(raw, dict):
        notes.refuse("expected an object with keys such as GPUPartitionSize. All of it is left out")
        return GpuConfig(), notes
    keys = ("GPUPartitionSize", "MaxTimeSharedClientsPerGPU", "GPUSharingConfig", "HealthCriticalXid")
    found = _known(raw, keys, "", notes)
    size = _typed(found, "GPUPartitionSize", str, "a text such as 3g.20gb", notes) or ""
    xids = _xids(found, notes)
    return GpuConfig(size, _sharing(found, notes), xids), notes


def _known(raw: dict[str, Any], keys: tuple[str, ...], above: str, notes: Notes) -> dict[str, Any]:
    """By their proper names: Go's decoder does not mind the case, passes over others, and takes null for nothing."""
    folded = {key.lower(): key for key in keys}
    found: dict[str, Any] = {}
    for key, value in raw.items():
        name = folded.get(key.lower())
        if name is None:
            notes.append(f"{above}{key[:80]}: unknown key, which is left out{did_you_mean(key[:80], keys)}")
        elif value is not None:
            found[name] = value
    return found


def _typed(found: dict[str, Any], key: str, kind: type, expected: str, notes: Notes, above: str = "") -> Any:
    value = found.get(key)
    if value is None or (isinstance(value, kind) and not isinstance(value, bool)):
        return value
    notes.refuse(f"{above}{key}: expected {expected}, got {value!r:.80}. It is left out")
    return None


def _sharing(found: dict[str, Any], notes: Notes) -> Sharing | None:
    number = "a whole number"
    old = _typed(found, "MaxTimeSharedClientsPerGPU", int, number, notes) or 0
    new = _typed(found, "GPUSharingConfig", dict, "an object", notes)
    if old > 0:
        if new:
            notes.append(
                "GPUSharingConfig: left out, because MaxTimeSharedClientsPerGPU is given too and goes before it"
            )
        return _shared("time-sharing", old, "MaxTimeSharedClientsPerGPU", notes)
    if not new:
        return None
    above = "GPUSharingConfig."
    inner = _known(new, ("GPUSharingStrategy", "MaxSharedClientsPerGPU"), above, notes)
    strategy = _typed(inner, "GPUSharingStrategy", str, "time-sharing or mps", notes, above) or ""
    clients = _typed(inner, "MaxSharedClientsPerGPU", int, number, notes, above) or 0
    end = "GPUs are not shared"
    if strategy not in ("", *STRATEGIES):
        hint = did_you_mean(strategy[:80], (), also=STRATEGIES)
        notes.refuse(f"{above}GPUSharingStrategy: {strategy!r:.80} is neither time-sharing nor mps{hint} {end}")
    elif strategy and clients <= 0:
        notes.refuse(f"{above}MaxSharedClientsPerGPU: it must be over 0 for {strategy}. {end}")
    elif clients > 0 and not strategy:
        notes.refuse(f"{above}GPUSharingStrategy: it is missing. Give time-sharing or mps. {end}")
    elif strategy:
        return _shared(strategy, clients, f"{above}MaxSharedClientsPerGPU", notes)
    return None


def _shared(strategy: str, clients: int, key: str, notes: Notes) -> Sharing:
    if clients > CLIENTS_MAX:
        notes.append(f"{key}: {clients} is too many; it is {CLIENTS_MAX}")
    return Sharing(strategy, min(clients, CLIENTS_MAX))


def _xids(found: dict[str, Any], notes: Notes) -> tuple[int, ...]:
    given = _typed(found, "HealthCriticalXid", list, "a list of numbers", notes) or []
    good = [xid for xid in given if isinstance(xid, int) and not isinstance(xid, bool) and 0 <= xid <= XID_MAX]
    if len(good) != len(given) or len(given) > XIDS_MAX:
        notes.refuse(f"HealthCriticalXid: expected up to {XIDS_MAX} numbers of XIDs. All of them are left out")
        return ()
    return tuple(good)


def check_size(size: str, source: str) -> int:
    """How many instances of a size each GPU has. UsageError for a size that no GPU of GKE has."""
    if size not in SIZES:
        hint = did_you_mean(size[:80], SIZES)
        raise UsageError(f"{source}: GPUPartitionSize: {size!r:.80} is not a valid GPU partition size{hint}")
    return SIZES[size]


def parse_xids(text: str) -> tuple[tuple[int, ...], str]:
    """XID_CONFIG: numbers with commas. One that is none leaves out all of them, as in theirs; the note says which."""
    tokens = [token.strip() for token in text.split(",")] if text.strip() else []
    if len(tokens) > XIDS_MAX:
        return (), f"XID_CONFIG: more than {XIDS_MAX} XIDs. All of them are left out"
    for token in tokens:
        if not _INT.fullmatch(token) or not 0 <= int(token) <= XID_MAX:
            return (), f"XID_CONFIG: {token!r:.80} is no XID. All of its XIDs are left out. Write such as 61, 31"
    return tuple(int(token) for token in tokens), ""


def read_divisor(path: str) -> tuple[int, str]:
    """How many VMs share a GPU of this machine, and a note about what was left out. No file: 1."""
    try:
        text = files.read_text(path, files.SMALL_BYTES).strip()
    except FileNotFoundError:
        return 1, ""
    except OSError as error:
        return 1, f"{path}: cannot be read: {error.strerror or error}. It counts as 1"
    if _INT.fullmatch(text) and int(text) > 0:
        return int(text), ""
    return 1, f"{path}: {text!r:.80} is no number over 0. It counts as 1"

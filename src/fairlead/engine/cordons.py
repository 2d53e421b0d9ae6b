"""The cordons of a daemon, kept over restarts in one small file, and the alarm that ends them.

Owns the file: written whole and synced, on a thread, because the kubelet's calls are answered meanwhile; read within
bounds. A file that is damaged or hostile is a problem in the status, and no cordon. `policy.cordon` says what a cordon
means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import msgspec
from msgspec import Struct

from fairlead.kit import files
from fairlead.kit.owner import Owner
from fairlead.model.errors import BackendError, UsageError
from fairlead.model.health import Condition
from fairlead.model.names import DeviceId
from fairlead.model.ports import Clock, Record
from fairlead.policy.cordon import CORDONS_MAX, Cordon, condition_of, flaw, is_over

VERSION = 1
FILE_MAX_BYTES = 2 * 2**20
LOOK_S = 60.0  # the wall clock may be set: it is read at least this often while a cordon has an end


class _Saved(Struct, frozen=True):
    version: int
    cordons: tuple[Cordon, ...]


class Cordons:
    """`note`: a problem by its topic, empty when it is over. `on_change`: other devices are cordoned than before."""

    def __init__(
        self, clock: Clock, record: Record, note: Callable[[str, str], None], on_change: Callable[[], None]
    ) -> None:
        self._clock, self._record, self._note, self._on_change = clock, record, note, on_change
        self.by_device: Mapping[DeviceId, Cordon] = {}
        self.conditions: Mapping[DeviceId, Condition] = {}
        self._path: Path | None = None
        self._thread: Owner | None = None
        self._stop_alarm: Callable[[], object] = lambda: None

    def open(self, path: Path) -> None:
        """Those of an earlier daemon that are not over."""
        self._path = path
        kept: tuple[Cordon, ...] = ()
        problem = ""
        try:
            kept = _decode(files.read_own(path, FILE_MAX_BYTES))
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as error:
            why = error.strerror or str(error) if isinstance(error, OSError) else str(error)
            problem = f"{path}: {why}. No device is cordoned by it: cordon again what pods must not get"
        self._note("cordons", problem)
        self._take({cordon.device: cordon for cordon in kept if not is_over(cordon, self._clock.now())})
        if self.by_device:
            self._record("cordons-kept", devices=list(self.by_device))

    def close(self) -> None:
        self._stop_alarm()
        if self._thread is not None:
            self._thread.close()
            self._thread = None

    async def add(self, cordon: Cordon, **by: int) -> str:
        """Counts at once. Answers why it is not on the disk; empty if it is. `by`: who ordered it, for the journal."""
        if cordon.device not in self.by_device and len(self.by_device) >= CORDONS_MAX:
            raise UsageError(f"{CORDONS_MAX} devices are cordoned, which is the limit. Uncordon another one first")
        self._take({**self.by_device, cordon.device: cordon})
        until_s = None if cordon.until_s is None else round(cordon.until_s)
        self._record("cordoned", device=cordon.device, reason=cordon.reason, until_s=until_s, **by)
        self._on_change()
        return await self._save()

    async def remove(self, device: DeviceId, **by: int) -> str:
        """As `add`."""
        was = self.by_device[device].reason
        self._take({name: cordon for name, cordon in self.by_device.items() if name != device})
        self._record("uncordoned", device=device, reason="ordered", was=was, **by)
        self._on_change()
        return await self._save()

    def _take(self, cordons: Mapping[DeviceId, Cordon]) -> None:
        now_s, monotonic_s = self._clock.now(), self._clock.monotonic()
        self.conditions = {
            device: self.conditions[device]
            if self.by_device.get(device) == cordon
            else condition_of(cordon, now_s, monotonic_s)
            for device, cordon in cordons.items()
        }
        self.by_device = cordons
        self._stop_alarm()
        ends = [cordon.until_s - now_s for cordon in cordons.values() if cordon.until_s is not None]
        if ends:
            self._stop_alarm = self._clock.alarm(min(max(min(ends), 0.0), LOOK_S), self._look)

    def _look(self) -> None:
        """Ends what is over. The file is left as it is: what is over there is over for a reader too."""
        now_s = self._clock.now()
        over = [cordon for cordon in self.by_device.values() if is_over(cordon, now_s)]
        self._take({device: cordon for device, cordon in self.by_device.items() if cordon not in over})
        for cordon in over:
            self._record("uncordoned", device=cordon.device, reason="its time is over", was=cordon.reason)
        if over:
            self._on_change()

    async def _save(self) -> str:
        if self._path is None:
            return "this daemon keeps no file of them"
        content = msgspec.json.encode(_Saved(VERSION, tuple(self.by_device.values())))
        self._thread = self._thread or Owner("cordons", self._clock)
        try:
            write = partial(files.replace, self._path, content, 0o600, sync=True)
            await self._thread.call(write, what=f"writing {self._path}")
            problem = ""
        except OSError as error:
            problem = f"{self._path}: {error.strerror or error}"
        except BackendError as error:
            problem = str(error)
        after = "" if not problem else f"the cordons are not on the disk, and change with the next restart: {problem}"
        self._note("cordons", f"{after}. Make room there, and give the order again" if after else "")
        return after


def _decode(content: bytes) -> tuple[Cordon, ...]:
    try:
        saved = msgspec.json.decode(content, type=_Saved)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise ValueError("it holds something else than cordons") from None
    if saved.version != VERSION:
        raise ValueError(f"its version is {saved.version}, and {VERSION} is known")
    if len(saved.cordons) > CORDONS_MAX:
        raise ValueError(f"it has {len(saved.cordons)} cordons, over {CORDONS_MAX}")
    if wrong := next(filter(None, map(flaw, saved.cordons)), ""):
        raise ValueError(f"a cordon in it cannot be used: {wrong}")
    return saved.cordons

"""Who holds what: asked of the kubelet, at a pace; and what is known without its pod-resources socket.

NVIDIA's chart, like most, does not mount that socket. The plugin directory is mounted, and the kubelet's checkpoint in
it proves that slots which left are free.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fairlead.engine.listing import Listing
from fairlead.fronts.podresources import DEADLINE_S, read_holdings
from fairlead.fronts.sockets import Identity, identity
from fairlead.kit.waiting import sleep_unless
from fairlead.model.errors import BackendError
from fairlead.model.holdings import Holdings, Unknown
from fairlead.model.names import ResourceName, SlotId
from fairlead.model.ports import Clock
from fairlead.model.resource import Slot

if TYPE_CHECKING:
    from fairlead.fronts.checkpoint import Checkpoint
    from fairlead.kit.owner import Owner

# What waits for pods to end is looked after at this pace: slots that left, the other form of a device, another unit.
# Who holds what is otherwise read only when it is asked for.
INTERVAL_S = 5.0
REST_S = 60.0  # the same while nothing waits
REPEAT_S = 60.0  # a list is sent again no oftener than this
Repeat = Callable[[Iterable[ResourceName]], None]


class Holders:
    """`pod_resources`: the kubelet's socket, empty: it is not asked. `directory`: where its checkpoint lies."""

    def __init__(self, clock: Clock, directory: Path, pod_resources: str = "") -> None:
        self._clock = clock
        self._directory = directory
        self.pod_resources = pod_resources  # may be changed while it runs
        self._owner: Owner | None = None
        self.known: Holdings | Unknown = Unknown("not read yet")
        self._kubelet: Identity | None = None  # the socket that gave the last answer
        self._last: Mapping[ResourceName, frozenset[SlotId]] = {}  # held, by the last answer
        # Held by the answers of the kubelet before, and not named since it was restarted.
        self._doubtful: dict[ResourceName, frozenset[SlotId]] = {}
        self._checkpoint: Checkpoint | None = None  # read only while pod-resources gives no answer
        self._unreadable = False  # there is a checkpoint, or there may be one, and it is not known what it says
        self._due = asyncio.Event()
        self._read_s = 0.0
        self.asked_s = 0.0  # when the kubelet was last asked
        self.known_s = 0.0  # the same, of the last time that it answered
        self._repeated_s = -REPEAT_S
        self.on_answer: Callable[[], object] = lambda: None  # the kubelet has said who holds what

    async def read(self, timeout_s: float = DEADLINE_S, *, checkpoint: bool = False) -> None:
        """`checkpoint`: the kubelet's own file is read too."""
        self.asked_s = self._clock.monotonic()
        self.take(*await ask(self.pod_resources, timeout_s))
        if checkpoint:
            await self.read_checkpoint()

    def take(self, answer: Holdings | Unknown, kubelet: Identity | None) -> None:
        """An answer, and the socket that it came from.

        A kubelet that has just started answers before it knows its pods. What the one before named is held until this
        one names it, or its checkpoint does not.
        """
        self.known = answer
        if isinstance(answer, Unknown):
            return
        self.known_s = self.asked_s
        if kubelet != self._kubelet:
            self._doubtful, self._kubelet = dict(self._last), kubelet
        self._doubtful = {name: left for name, slots in self._doubtful.items() if (left := slots - answer.of(name))}
        self._last = self.held or {}
        self.on_answer()

    @property
    def held(self) -> Mapping[ResourceName, frozenset[SlotId]] | None:
        """What pods hold, or may hold. None: the kubelet gives no answer."""
        if not isinstance(self.known, Holdings):
            return None
        named = self.known.by_resource
        if not self._doubtful:
            return named
        both = {**named, **self._doubtful}
        return {name: self.known.of(name) | self._doubtful.get(name, frozenset()) for name in both}

    def on_disk(self) -> frozenset[ResourceName] | None:
        """Resources that pods hold by the checkpoint. None: it was not, or cannot be, read since the kubelet was asked.

        A kubelet that has just started answers before it knows its pods, and it never names init containers.
        """
        if self._read_s < self.asked_s or self._unreadable:
            return None
        return frozenset(self._checkpoint.held) if self._checkpoint is not None else frozenset()

    def listed(self, resource: ResourceName) -> frozenset[SlotId]:
        """Ids that the kubelet had from the last server of the resource, by the checkpoint."""
        return self._checkpoint.listed.get(resource, frozenset()) if self._checkpoint is not None else frozenset()

    def is_free(self, resource: ResourceName, slot: Slot) -> bool:
        """Whether a slot that left is known to be free by the checkpoint. One that is older proves nothing."""
        checkpoint, left_s = self._checkpoint, slot.retired_s
        return (
            checkpoint is not None
            and left_s is not None
            and left_s < self._read_s
            and checkpoint.is_free(resource, slot.id)
        )

    def wake(self) -> None:
        """The listing has changed: there may be something to wait for."""
        self._due.set()

    async def follow(self, listing: Listing, refresh: Callable[[], None], repeat: Repeat) -> None:
        """Asks while a slot waits for the answer, or while none came yet. Run it as a task."""
        while True:
            self._due.clear()
            if not (listing.waiting or listing.units.waiting or self._doubtful or self._is_awaited()):
                await self._rest()
            await self._pause(listing)
            # Not known is not the same as held by none: the kubelet may have been away when it was asked.
            if listing.waiting or listing.units.waiting or self._doubtful or isinstance(self.known, Unknown):
                before = self.known
                await self.read()
                if listing.units.waiting or self._doubtful or (listing.waiting and isinstance(self.known, Unknown)):
                    await self.read_checkpoint()
                    self._repeat_stale(listing, repeat)
                if listing.waiting or listing.units.waiting or self.known != before:
                    refresh()

    async def _pause(self, listing: Listing) -> None:
        """Not where a slot left since the kubelet was asked: its device may be withheld until the answer."""
        ends_s = self._clock.monotonic() + INTERVAL_S
        while listing.unsure_s <= self.asked_s and (left_s := ends_s - self._clock.monotonic()) > 0:
            self._due.clear()
            await sleep_unless(self._due, self._clock, left_s)

    def _is_awaited(self) -> bool:
        """Whether a kubelet that gave no answer may give one soon: its directory is there."""
        return isinstance(self.known, Unknown) and bool(self.pod_resources) and not missing_mount(self.pod_resources)

    async def _rest(self) -> None:
        stop_alarm = self._clock.alarm(REST_S, self._due.set)
        try:
            await self._due.wait()
        finally:
            stop_alarm()

    def _repeat_stale(self, listing: Listing, repeat: Repeat) -> None:
        """Pods that have ended leave the checkpoint when the kubelet writes it, and it writes it for a list."""
        now_s = self._clock.monotonic()
        if not isinstance(self.known, Holdings) or now_s - self._repeated_s < REPEAT_S:
            return
        stale = {name for name in listing.units.waiting & (self.on_disk() or set()) if not self.known.of(name)}
        if stale := stale | set(self._doubtful):
            self._repeated_s = now_s
            repeat(stale)

    async def read_checkpoint(self) -> None:
        """On a thread of its own: the file may be large, and its file system may hang."""
        from fairlead.fronts.checkpoint import is_written, read_checkpoint  # noqa: PLC0415 - as above
        from fairlead.kit.owner import Owner  # noqa: PLC0415 - most daemons can ask the kubelet

        self._owner = self._owner or Owner("checkpoint", self._clock)
        now_s = self._clock.monotonic()
        directory = self._directory

        def read() -> tuple[Checkpoint | None, bool]:
            found = read_checkpoint(directory)
            return found, found is None and is_written(directory)

        try:
            found, unreadable = await self._owner.call(read, what="the kubelet's checkpoint")
        except BackendError:
            found, unreadable = None, True  # the slots stay, and so do the units
        self._checkpoint, self._unreadable, self._read_s = found, unreadable, now_s
        if not unreadable:
            written = found.held if found is not None else {}
            doubtful = ((name, slots & written.get(name, frozenset())) for name, slots in self._doubtful.items())
            self._doubtful = {name: left for name, left in doubtful if left}

    def close(self) -> None:
        if self._owner is not None:
            self._owner.close()


async def ask(path: str, timeout_s: float) -> tuple[Holdings | Unknown, Identity | None]:
    """The kubelet's answer, and which kubelet gave it."""
    if not path:
        return Unknown("kubelet.podResources is empty"), None
    socket = Path(path)
    before = identity(socket)
    answer = await read_holdings(socket, timeout_s=timeout_s)
    if isinstance(answer, Holdings) and identity(socket) != before:
        return Unknown(f"{socket}: the kubelet was restarted meanwhile"), None
    return answer, before


def missing_mount(pod_resources: str, *, in_pod: bool = True) -> str:
    """What to do, where the directory of the pod-resources socket is not there; else empty."""
    directory = Path(pod_resources).parent
    if not pod_resources or directory.exists():
        return ""
    cure = (
        f"Add to the pod: volumes: [{{name: pod-resources, hostPath: {{path: {directory}}}}}]; and to its container: "
        f"volumeMounts: [{{name: pod-resources, mountPath: {directory}, readOnly: true}}]"
    )
    if not in_pod:
        cure = (
            "A kubelet makes it when it starts, below its --root-dir. If that is another one, set "
            "kubelet.podResources (--pod-resources) to the socket there"
        )
    return (
        f"{directory} is not there. Slots that leave stay listed until the kubelet's checkpoint shows that they are "
        f"free, and status does not tell holders. {cure}"
    )

"""Who holds what: asked of the kubelet, at a pace; and what is known without its pod-resources socket.

NVIDIA's chart, like most, does not mount that socket. The plugin directory is mounted, and the kubelet's checkpoint in
it proves that slots which left are free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fairlead.app.stock import Ledger
from fairlead.config.spec import Config
from fairlead.kubelet.podresources import DEADLINE_S, Holdings, Unknown, read_holdings
from fairlead.kubelet.sockets import Identity, identity
from fairlead.model.errors import BackendError
from fairlead.model.names import ResourceName, SlotId
from fairlead.model.ports import Clock
from fairlead.model.resource import Slot

if TYPE_CHECKING:
    from fairlead.backends.owner import Owner
    from fairlead.kubelet.checkpoint import Checkpoint

# What waits for pods to end is looked after at this pace: slots that left, the other form of a device, another unit.
# Who holds what is otherwise read only when it is asked for.
INTERVAL_S = 5.0
STIR_S = 60.0  # a list is sent again no oftener than this
Repeat = Callable[[Iterable[ResourceName]], None]


class Holders:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._owner: Owner | None = None
        self.known: Holdings | Unknown = Unknown("not read yet")
        self._kubelet: Identity | None = None  # the socket that gave the last answer
        self._last: Mapping[ResourceName, frozenset[SlotId]] = {}  # held, by the last answer
        # Held by the answers of the kubelet before, and not named since it was restarted.
        self._doubtful: dict[ResourceName, frozenset[SlotId]] = {}
        self._checkpoint: Checkpoint | None = None  # read only while pod-resources gives no answer
        self._unreadable = False  # there is a checkpoint, or there may be one, and it is not known what it says
        self._read_s = 0.0
        self.asked_s = 0.0  # when the kubelet was last asked
        self._stirred_s = -STIR_S

    async def read(self, config: Config, timeout_s: float = DEADLINE_S, *, checkpoint: bool = False) -> None:
        """`checkpoint`: the kubelet's own file is read too."""
        self.asked_s = self._clock.monotonic()
        self.take(*await ask(config.kubelet.pod_resources, timeout_s))
        if checkpoint:
            await self._read_checkpoint(config)

    def take(self, answer: Holdings | Unknown, kubelet: Identity | None) -> None:
        """An answer, and the socket that it came from.

        A kubelet that has just started answers before it knows its pods. What the one before named is held until this
        one names it, or its checkpoint does not.
        """
        self.known = answer
        if isinstance(answer, Unknown):
            return
        if kubelet != self._kubelet:
            self._doubtful, self._kubelet = dict(self._last), kubelet
        self._doubtful = {name: left for name, slots in self._doubtful.items() if (left := slots - answer.of(name))}
        self._last = self.held or {}

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
        """Ids that the kubelet had from whoever served the resource last, by the checkpoint."""
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

    async def follow(
        self, ledger: Ledger, config: Callable[[], Config], refresh: Callable[[], None], repeat: Repeat
    ) -> None:
        """Asks while a slot waits for the answer, or while none came yet. Run it as a task."""
        while True:
            await self._clock.sleep(INTERVAL_S)
            # Not known is not the same as held by none: the kubelet may have been away when it was asked.
            if ledger.waiting or ledger.units.wishes or self._doubtful or isinstance(self.known, Unknown):
                before = self.known
                await self.read(config())
                if ledger.units.wishes or self._doubtful or (ledger.waiting and isinstance(self.known, Unknown)):
                    await self._read_checkpoint(config())
                    self._stir(ledger, repeat)
                if ledger.waiting or ledger.units.wishes or self.known != before:
                    refresh()

    def _stir(self, ledger: Ledger, repeat: Repeat) -> None:
        """Pods that have ended leave the checkpoint when the kubelet writes it, and it writes it for a list."""
        now_s = self._clock.monotonic()
        if not isinstance(self.known, Holdings) or now_s - self._stirred_s < STIR_S:
            return
        stale = {name for name in ledger.units.wishes & (self.on_disk() or set()) if not self.known.of(name)}
        if stale := stale | set(self._doubtful):
            self._stirred_s = now_s
            repeat(stale)

    async def _read_checkpoint(self, config: Config) -> None:
        """On a thread of its own: the file may be large, and its file system may hang."""
        from fairlead.backends.owner import Owner  # noqa: PLC0415 - most daemons can ask the kubelet
        from fairlead.kubelet.checkpoint import is_written, read_checkpoint  # noqa: PLC0415 - as above

        self._owner = self._owner or Owner("checkpoint", self._clock)
        now_s = self._clock.monotonic()
        directory = Path(config.kubelet.directory)

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


def cure(config: Config) -> str:
    """What to mount, where the directory of the pod-resources socket is not there; else empty."""
    directory = Path(config.kubelet.pod_resources).parent
    if not config.kubelet.pod_resources or directory.exists():
        return ""
    return (
        f"{directory} is not there. Slots that leave stay listed until the kubelet's checkpoint shows that they are "
        f"free, and status does not tell holders. Add to the pod: volumes: [{{name: pod-resources, hostPath: {{path: "
        f"{directory}}}}}]; and to its container: volumeMounts: [{{name: pod-resources, mountPath: {directory}, "
        "readOnly: true}]"
    )

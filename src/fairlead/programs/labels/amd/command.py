"""`fairlead amd labels`: the flags and the environment of AMD's node labeller, and its rounds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from msgspec import Struct

from fairlead.backends.amd.host import fingerprint
from fairlead.cluster.client import Client
from fairlead.dialects import goflags
from fairlead.dialects.goflags import FOREVER, BadFlag, Flag, Kind
from fairlead.dialects.invocation import GLOG, HELP
from fairlead.kit.hostroot import HostRoot
from fairlead.kit.owner import Owner
from fairlead.kit.supervise import SupervisedLoop
from fairlead.kit.waiting import run_unless
from fairlead.model.errors import BackendError
from fairlead.model.ports import Clock
from fairlead.programs.labels.amd.catalogue import KINDS, make_labels
from fairlead.programs.labels.amd.machine import read_facts
from fairlead.programs.labels.amd.node import WatchedNode
from fairlead.programs.labels.outputs import FileOutput
from fairlead.programs.labels.rounds import Note, Rounds, keep

PROGRAM = "fairlead amd labels"
SUMMARY = "Labels the node with what its AMD GPUs are."
NODE_VARIABLE = "DS_NODE_NAME"
LOOK_DEADLINE_S = 20.0
GLANCE_S = 5.0
_HELP = {
    "firmware": "Versions of the firmware, by block.",
    "family": "The family, such as AI.",
    "device-id": "PCI device ids.",
    "product-name": "Product names.",
    "vram": "Memory, in GiB.",
    "simd-count": "Number of SIMD units.",
    "cu-count": "Number of compute units.",
    "driver-version": "Version of the driver.",
    "driver-src-version": "Version of the driver's source.",
    "compute-memory-partition": "How the GPUs are partitioned, such as cpx_nps4, if all are partitioned alike.",
    "compute-partitioning-supported": "Whether a GPU can be partitioned by compute units.",
    "memory-partitioning-supported": "Whether a GPU can be partitioned by memory.",
}
FLAGS = (
    *(Flag(kind, Kind.BOOL, False, help=_HELP[kind]) for kind in KINDS),
    Flag("kubeconfig", Kind.TEXT, "", help="How to reach the cluster from outside of a pod: a file."),
    *GLOG,
)
OWN = (
    Flag("node-name", Kind.TEXT, "", (NODE_VARIABLE,), help="The node that the labels are for."),
    Flag(
        "sleep-interval",
        Kind.DURATION,
        60.0,
        help="Time between two looks, or infinite. GPUs that come or go are seen within 5 s.",
    ),
    Flag("oneshot", Kind.BOOL, False, help="Label once, and end."),
    Flag("output-file", help="Write the labels to this file, and not to the node. Empty: standard output."),
    Flag("host-root", Kind.TEXT, "/", ("FAIRLEAD_HOST_ROOT",), help="Below it are the host's /sys and /usr."),
    HELP,
)


class Settings(Struct, frozen=True):
    kinds: tuple[str, ...]
    kubeconfig: str
    node_name: str
    sleep_interval: float
    oneshot: bool
    output_file: str | None  # None: the node
    host_root: str


def read_settings(args: Sequence[str], environ: Mapping[str, str]) -> Settings | str:
    """The settings; or the help text, if that was asked for. BadFlag for what cannot be."""
    parsed = goflags.parse((*FLAGS, *OWN), args, environ)
    values = {name.replace("-", "_"): value for name, value in parsed.values.items()}
    if values["help"]:
        return goflags.usage(PROGRAM, SUMMARY, (*FLAGS, *OWN))
    if parsed.rest:
        raise BadFlag(f"{parsed.rest[0]!r} is no flag: it and all after it would be passed over. Flags begin with -")
    kinds = tuple(kind for kind in KINDS if parsed.values[kind])
    made = Settings(kinds, *(values[key] for key in Settings.__struct_fields__[1:]))
    if not made.sleep_interval >= 0:  # no number is not
        raise BadFlag(f"--sleep-interval: {made.sleep_interval:g} s is no time to wait. Use one such as 60s")
    if made.output_file is None and not made.node_name:
        raise BadFlag(f"{NODE_VARIABLE} is not set. Set it to spec.nodeName in the manifest, or give --node-name")
    return made


class Machine:
    """Reads the GPUs on a thread: a read of sysfs may hang."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._kinds = settings.kinds
        self._root = HostRoot(settings.host_root)
        self._known: dict[str, str] = {}  # as last read
        self._owner = Owner("sysfs", clock)
        self._clock = clock

    async def look(self) -> tuple[Mapping[str, str], Sequence[str]]:
        """BackendError if the driver is not there, or cannot be read."""
        facts, problems = await self._owner.call(
            read_facts, self._root, self._known, deadline_s=LOOK_DEADLINE_S, what="a look at the GPUs"
        )
        labels, notes = make_labels(facts, self._kinds)
        return labels, (*problems, *notes)

    async def tell_changes(self, tell: Callable[[], None]) -> None:
        """Runs until cancelled. A glance is cheaper than a look: which GPUs there are, and how they are partitioned."""
        seen: frozenset[str] | None = None
        while True:
            with suppress(BackendError):
                found = await self._owner.call(fingerprint, self._root, deadline_s=LOOK_DEADLINE_S, what="a glance")
                if seen not in (None, found):
                    tell()
                seen = found
            await self._clock.sleep(GLANCE_S)

    def close(self) -> None:
        self._owner.close()


async def run(settings: Settings, client: Client | None, clock: Clock, stop: asyncio.Event, note: Note) -> None:
    """Until `stop` is set, or once. Without a client the labels go to the file."""
    machine = Machine(settings, clock)
    try:
        if client is None:
            await _keep_file(settings, machine, clock, stop, note)
        else:
            await _keep_node(settings, machine, client, stop, note)
    finally:
        machine.close()


async def _keep_file(settings: Settings, machine: Machine, clock: Clock, stop: asyncio.Event, note: Note) -> None:
    output = FileOutput(settings.output_file or "", keep=settings.oneshot or settings.sleep_interval == FOREVER)
    rounds = Rounds(machine.look, output, note)

    async def turn() -> None:
        try:
            await rounds.turn()
        except BackendError as error:
            if settings.oneshot:
                raise
            rounds.say_once(str(error))

    await keep(turn, clock, stop, interval_s=settings.sleep_interval, oneshot=settings.oneshot)
    if not settings.oneshot:
        await output.withdraw()


async def _keep_node(settings: Settings, machine: Machine, client: Client, stop: asyncio.Event, note: Note) -> None:
    """Retries a failed look and a failed write with a growing pause. Until then the labels stay as they are."""
    node = WatchedNode(client, settings.node_name, note)
    rounds = Rounds(machine.look, node, note)
    if settings.oneshot:
        await run_unless(stop, rounds.turn())
        return

    async def turn() -> None:
        await rounds.turn()
        await node.rest(settings.sleep_interval)

    loop = SupervisedLoop(
        "labels",
        turn,
        clock=client.clock,
        rng=client.rng,
        report=lambda problem: note(problem or "the labels are up to date again"),
        record=lambda event, **facts: note(f"{event}: {facts}"),
    )
    await run_unless(stop, asyncio.gather(loop.run(), node.follow(), machine.tell_changes(node.wake)))

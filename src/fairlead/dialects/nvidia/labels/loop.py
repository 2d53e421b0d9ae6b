"""Looks, labels, and looks again. Owns the order of things; what is read and where it goes are elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct

from fairlead.backends.nvidia import cuda
from fairlead.backends.nvidia.driver import Driver
from fairlead.backends.nvidia.errors import NvmlError
from fairlead.backends.nvidia.records import Kind, Look
from fairlead.backends.nvidia.spec import Discovery, Options
from fairlead.backends.owner import Owner
from fairlead.dialects import goflags
from fairlead.dialects.goflags import FOREVER, BadFlag
from fairlead.dialects.nvidia import v1
from fairlead.dialects.nvidia.labels import machine
from fairlead.dialects.nvidia.labels.catalogue import Facts, make_labels
from fairlead.dialects.nvidia.labels.flags import FLAGS, OWN
from fairlead.dialects.nvidia.labels.names import find_offered
from fairlead.dialects.nvidia.labels.outputs import FeatureOutput, FileOutput, NodeOutput, Output
from fairlead.dialects.nvidia.offers import Offer, in_force, list_offers
from fairlead.dialects.nvidia.settings import resolve
from fairlead.dialects.nvidia.v1 import BadFile
from fairlead.model.errors import BackendError
from fairlead.model.ports import Clock

LOOK_DEADLINE_S = 60.0
_FABRIC_DONE = 3
_STRATEGIES = ("auto", "nvml", "tegra", "vfio")

Note = Callable[[str], None]
R = TypeVar("R")


class Settings(Struct, frozen=True):
    mig_strategy: str
    fail_on_init_error: bool
    oneshot: bool
    no_timestamp: bool
    sleep_interval: float
    output_file: str
    machine_type_file: str
    use_node_feature_api: bool
    device_discovery_strategy: str
    driver_root_ctr_path: str
    kubeconfig: str
    namespace: str
    node_name: str
    pod_name: str
    to_node: bool
    host_root: str
    sharing: str = "none"
    offers: tuple[Offer, ...] = ()
    notes: tuple[str, ...] = ()  # what of the config file has no effect


def read_settings(args: Sequence[str], environ: Mapping[str, str]) -> Settings | str:
    """The settings; or the help text, if that was asked for. BadFlag for what cannot be."""
    parsed = goflags.parse((*FLAGS, *OWN), args, environ)
    if parsed.values["help"]:
        return goflags.usage("fairlead nvidia labels", "Labels the node with what its GPUs are.", (*FLAGS, *OWN))
    if parsed.rest and not parsed.values["lenient"]:
        raise BadFlag(f"{parsed.rest[0]!r} is no flag: it and all after it would be passed over")
    path, lenient = str(parsed.values["config-file"]), bool(parsed.values["lenient"])
    file, notes = in_force(v1.load(path, lenient=lenient) if path else v1.EMPTY, lenient=lenient)
    values: dict[str, Any] = resolve((*FLAGS, *OWN), parsed, file)
    problems: list[str] = []
    values["offers"] = tuple(list_offers(file, values["mig_strategy"], problems, notes, lenient=lenient))
    if problems:
        raise BadFile(path, problems)
    values |= {"sharing": file.sharing[0], "notes": tuple(notes)}
    made = Settings(**{key: values[key] for key in Settings.__struct_fields__})
    if made.device_discovery_strategy not in _STRATEGIES:
        words = " or ".join(_STRATEGIES)
        raise BadFlag(f"invalid --device-discovery-strategy option {made.device_discovery_strategy}. Use {words}")
    if not made.sleep_interval >= 0:  # no number is not
        raise BadFlag(f"--sleep-interval: {made.sleep_interval:g} s is no time to wait. Use one such as 60s")
    if made.output_file and not Path(made.output_file).name:
        raise BadFlag(f"--output-file: {made.output_file!r} is a directory. Name the file in it")
    if (made.use_node_feature_api or made.to_node) and not made.node_name:
        raise BadFlag("required flag node-name not set. Give --node-name or NODE_NAME, or --use-node-feature-api=false")
    return made


class Reader:
    """Reads what the labels are made of. The driver lives on a thread of its own: it may hang."""

    def __init__(self, settings: Settings, clock: Clock, note: Note) -> None:
        self._settings = settings
        self._clock = clock
        self._note = note
        self._owner = Owner("nvml", clock)
        self._timestamp = None if settings.no_timestamp else int(clock.now())
        self._driver = None
        if settings.device_discovery_strategy != "vfio":
            options = Options(
                discovery=Discovery(settings.device_discovery_strategy),
                driver_root_mount=settings.driver_root_ctr_path,
                host_root=settings.host_root,
            )
            self._driver = Driver(options)

    async def facts(self) -> Facts:
        """BackendError when the driver cannot be used and that is not to be overlooked."""
        try:
            return await self._owner.call(self._read, deadline_s=LOOK_DEADLINE_S, what="a look at the GPUs")
        except BackendError as error:
            if self._settings.fail_on_init_error:
                raise
            self._note(f"no labels of GPUs: {error}")
            return Facts(timestamp=self._timestamp, vgpus=machine.read_vgpus(self._settings.host_root))

    def _read(self) -> Facts:
        root = self._settings.host_root
        look, cliques = self._look()
        return Facts(
            look,
            machine.read_machine(self._settings.machine_type_file),
            machine.read_classes(look.gpus, root),
            cliques,
            machine.read_vgpus(root),
            self._timestamp,
        )

    def _look(self) -> tuple[Look, tuple[tuple[str, int], ...]]:
        if self._driver is None:
            return machine.look_at_vfio(self._settings.host_root), ()
        look = self._driver.look()
        for problem in look.problems:
            self._note(problem)
        if look.kind is Kind.TEGRA:
            look = cuda.look()
        cliques = tuple(found for gpu in look.gpus if (found := self._clique(gpu.uuid)) is not None)
        self._driver.end_session()  # GPUs are counted when a session starts
        return look, cliques

    def _clique(self, uuid: str) -> tuple[str, int] | None:
        assert self._driver is not None
        nvml, handle = self._driver.nvml, self._driver.handles.get(uuid)
        if nvml is None or handle is None:
            return None
        try:
            info = nvml.fabric(handle)
        except NvmlError:
            return None
        cluster = bytes(info.clusterUuid)
        if info.state != _FABRIC_DONE or info.status != 0 or not any(cluster):
            return None
        text = cluster.hex()
        parts = (text[:8], text[8:12], text[12:16], text[16:20], text[20:])
        return "-".join(parts), int(info.cliqueId)

    def close(self) -> None:
        self._owner.close()


async def run(settings: Settings, output: Output, clock: Clock, stop: asyncio.Event, note: Note) -> None:
    """Until told to stop, or once."""
    reader = Reader(settings, clock, note)
    told: set[str] = set()
    try:
        while True:
            facts = await _unless(stop, reader.facts())
            if facts is None:
                return
            offered = find_offered(facts.look, settings.mig_strategy, settings.offers)
            labels, notes = make_labels(facts, settings.mig_strategy, settings.sharing, offered)
            for text in (*settings.notes, *notes):
                if text not in told:
                    told.add(text)
                    note(text)
            if len(labels) <= 1:
                note("there is next to nothing to label: no GPU was found")
            await _unless(stop, output.write(labels))
            if settings.oneshot:
                return
            if await _stopped(stop, settings.sleep_interval, clock):
                return
    finally:
        reader.close()
        if not settings.oneshot and stop.is_set():
            await output.withdraw()


async def _unless(stop: asyncio.Event, work: Coroutine[Any, Any, R]) -> R | None:
    """The result; None if it is time to stop first. A driver that hangs, or a server that is away, holds nobody up."""
    doing, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({doing, stopping}, return_when=asyncio.FIRST_COMPLETED)
        return doing.result() if doing.done() else None
    finally:
        doing.cancel()
        stopping.cancel()
        await asyncio.gather(doing, stopping, return_exceptions=True)


async def _stopped(stop: asyncio.Event, seconds: float, clock: Clock) -> bool:
    waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(stop.wait())]
    if seconds != FOREVER:
        waits.append(asyncio.ensure_future(clock.sleep(max(seconds, 0.1))))
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
    return stop.is_set()


def file_output(settings: Settings) -> FileOutput:
    return FileOutput(settings.output_file, keep=settings.oneshot or settings.sleep_interval == FOREVER)


__all__ = ["FeatureOutput", "NodeOutput", "Settings", "file_output", "read_settings", "run"]

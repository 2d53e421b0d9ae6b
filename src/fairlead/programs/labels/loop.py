"""`fairlead nvidia labels`: its settings, and what is read for its labels. Where they go is elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from fairlead.backends.nvidia import cuda
from fairlead.backends.nvidia.driver import Driver
from fairlead.backends.nvidia.errors import NvmlError
from fairlead.backends.nvidia.snapshot import Platform, Snapshot
from fairlead.backends.nvidia.spec import Discovery, Options
from fairlead.dialects import goflags
from fairlead.dialects.configfile import BadFile
from fairlead.dialects.goflags import FOREVER, BadFlag
from fairlead.dialects.invocation import find_refused, merge
from fairlead.dialects.nvidia import v1
from fairlead.dialects.nvidia.flags import LABEL_FLAGS, LABEL_OWN
from fairlead.dialects.nvidia.selections import Selection, in_force, list_selections
from fairlead.kit.owner import Owner
from fairlead.model.errors import BackendError
from fairlead.model.ports import Clock
from fairlead.programs.labels import machine
from fairlead.programs.labels.catalogue import Facts, make_labels
from fairlead.programs.labels.names import find_offered
from fairlead.programs.labels.outputs import FeatureOutput, FileOutput, NodeOutput, Output
from fairlead.programs.labels.rounds import Note, Rounds, keep

LOOK_DEADLINE_S = 60.0
_FABRIC_DONE = 3


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
    selections: tuple[Selection, ...] = ()
    notes: tuple[str, ...] = ()  # what of the config file has no effect


def read_settings(args: Sequence[str], environ: Mapping[str, str]) -> Settings | str:
    """The settings; or the help text, if that was asked for. BadFlag for what cannot be."""
    flags = (*LABEL_FLAGS, *LABEL_OWN)
    parsed = goflags.parse(flags, args, environ)
    if parsed.values["help"]:
        return goflags.usage("fairlead nvidia labels", "Labels the node with what its GPUs are.", flags)
    if parsed.rest and not parsed.values["lenient"]:
        raise BadFlag(f"{parsed.rest[0]!r} is no flag: it and all after it would be passed over")
    path, lenient = str(parsed.values["config-file"]), bool(parsed.values["lenient"])
    file, notes = in_force(v1.load(path, lenient=lenient), lenient=lenient)
    parsed = merge(flags, parsed, file.flags, path)
    values: dict[str, Any] = {name.replace("-", "_"): value for name, value in parsed.values.items()}
    problems: list[str] = []
    values["selections"] = tuple(list_selections(file, values["mig_strategy"], problems, notes, lenient=lenient))
    if problems:
        raise BadFile(path, problems)
    values |= {"sharing": file.sharing[0], "notes": tuple(notes)}
    made = Settings(**{key: values[key] for key in Settings.__struct_fields__})
    # Of an unknown MIG strategy `find_offered` makes none, as gpu-feature-discovery does.
    discovery = [flag for flag in LABEL_FLAGS if flag.name == "device-discovery-strategy"]
    if refused := next(find_refused(discovery, parsed, lenient=lenient), ""):
        raise BadFlag(refused)
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
        snapshot, cliques = self._snapshot()
        return Facts(
            snapshot,
            machine.read_machine(self._settings.machine_type_file),
            machine.read_classes(snapshot.gpus, root),
            cliques,
            machine.read_vgpus(root),
            self._timestamp,
        )

    def _snapshot(self) -> tuple[Snapshot, tuple[tuple[str, int], ...]]:
        if self._driver is None:
            return machine.vfio_snapshot(self._settings.host_root), ()
        snapshot = self._driver.snapshot()
        for problem in snapshot.problems:
            self._note(problem)
        if snapshot.platform is Platform.TEGRA:
            snapshot = cuda.snapshot()
        cliques = tuple(found for gpu in snapshot.gpus if (found := self._clique(gpu.uuid)) is not None)
        self._driver.end_session()  # GPUs are counted when a session starts
        return snapshot, cliques

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
    """Until `stop` is set, or once."""
    reader = Reader(settings, clock, note)

    async def look() -> tuple[Mapping[str, str], Sequence[str]]:
        facts = await reader.facts()
        offered = find_offered(facts.snapshot, settings.mig_strategy, settings.selections)
        labels, notes = make_labels(facts, settings.mig_strategy, settings.sharing, offered)
        if len(labels) <= 1:
            note("there is next to nothing to label: no GPU was found")
        return labels, (*settings.notes, *notes)

    try:
        turn = Rounds(look, output, note).turn
        await keep(turn, clock, stop, interval_s=settings.sleep_interval, oneshot=settings.oneshot)
    finally:
        reader.close()
        if not settings.oneshot and stop.is_set():
            await output.withdraw()


def file_output(settings: Settings) -> FileOutput:
    return FileOutput(settings.output_file, keep=settings.oneshot or settings.sleep_interval == FOREVER)


__all__ = ["FeatureOutput", "NodeOutput", "Settings", "file_output", "read_settings", "run"]

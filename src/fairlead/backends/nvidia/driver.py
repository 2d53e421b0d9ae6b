"""The driver: one session with NVML, and what it reports of all GPUs. Blocking: runs on the owner thread.

Knows nothing of resources and of health policy. A GPU that fails a question costs itself only, never its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from msgspec.structs import replace

from fairlead.backends.nvidia import library
from fairlead.backends.nvidia.errors import GpusFailed, NvmlError, init_failed
from fairlead.backends.nvidia.kernel import Caps, KernelFingerprint, read_mig_minors, read_numa, sysfs_bus_id
from fairlead.backends.nvidia.links import read_links
from fairlead.backends.nvidia.mig import read_migs
from fairlead.backends.nvidia.nodes import read_nodes
from fairlead.backends.nvidia.nvml import ADDRESSING_ATS, GPU_IS_LOST, RESET_REQUIRED, UNKNOWN, Handle, Nvml
from fairlead.backends.nvidia.snapshot import Gpu, Platform, Snapshot
from fairlead.backends.nvidia.spec import Discovery, Options
from fairlead.model.device import Usage
from fairlead.model.errors import BackendError
from fairlead.model.inventory import NO_LINKS, Links
from fairlead.model.names import SLOT_ID_MAX

R = TypeVar("R")
NO_NVML = "NVML's library was not found: GPUs are known by their device nodes alone, and their health is not watched"
LOST_EVERY = 5  # so many scans to a new session while a GPU does not answer: it may have been reset meanwhile
_DISPLAYS = frozenset({"DGX Display", "NVIDIA DGX Display"})  # drive a screen and nothing else


class Driver:
    def __init__(self, options: Options) -> None:
        self._options = options
        self._fingerprint = KernelFingerprint(options.host_root)
        self._seen_fingerprint: frozenset[str] = frozenset()
        self._started = False
        self.sessions = 0  # that were started
        self._missing = False  # a GPU that is counted did not answer
        self._waited = 0  # scans since then
        self._links: tuple[frozenset[tuple[str, str]], Links] = (frozenset(), NO_LINKS)
        self.nvml: Nvml | None = None
        self.handles: dict[str, Handle] = {}  # by UUID; of GPUs that answered the last look
        self.last: Snapshot | None = None
        self.busy_with = ""  # the GPU that is being asked now; read by the loop when an answer is late

    # --- The session ----------------------------------------------------------------------------------------------

    def is_stale(self) -> bool:
        """Whether only a new session would show what is there. GPUs are counted when a session starts."""
        if not self._started:
            return False
        fingerprint = self._fingerprint.read()
        if not fingerprint or fingerprint != self._seen_fingerprint:
            return True  # without a fingerprint a change would not be seen: each scan is a new session
        if not self._missing:
            return False
        self._waited = (self._waited + 1) % LOST_EVERY
        return self._waited == 1

    def end_session(self) -> None:
        """The next look starts a new one."""
        if self.nvml is not None and self._started:
            self._started = False
            self.handles = {}
            with suppress(NvmlError):
                self.nvml.shutdown()

    def _start(self) -> Nvml:
        if self.nvml is None:
            self.nvml = library.load(self._options.driver_root_mount)
        if not self._started:
            fingerprint = self._fingerprint.read()
            try:
                self.nvml.init()
            except NvmlError as error:
                self.nvml = None  # the next try takes the library that is there then: an upgrade may have replaced it
                raise init_failed(error) from None
            self._started, self._seen_fingerprint = True, fingerprint
            self.sessions += 1
        return self.nvml

    # --- A look at everything -------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        if self._is_by_nodes():
            found = read_nodes(self._options.host_root)
            problems = (NO_NVML, *found.problems) if self._options.discovery is Discovery.ANY else found.problems
            self.last = replace(found, problems=problems)
            return self.last
        kind = library.kind_before(self._options)
        if kind is Platform.TEGRA:
            self.last = Snapshot(Platform.TEGRA)
            return self.last
        self.last = self._snapshot(self._start(), kind)
        return self.last

    def _is_by_nodes(self) -> bool:
        if self._options.discovery is Discovery.ANY and not self._started:
            return not library.has_library(self._options.driver_root_mount)
        return self._options.discovery is Discovery.NODES

    def _snapshot(self, nvml: Nvml, kind: Platform) -> Snapshot:
        caps = read_mig_minors(self._options.host_root)
        before = {gpu.index: gpu for gpu in (*self.last.gpus, *self.last.lost)} if self.last else {}
        gpus: dict[str, Gpu] = {}
        missed: dict[int, str] = {}
        notes: list[str] = []
        handles: dict[str, Handle] = {}
        count = nvml.count()
        for index in range(count):
            known = before.get(index)
            with self._asking(known.uuid if known else f"GPU {index}"):
                try:
                    handle = nvml.handle(index)
                    gpu = self._read(nvml, handle, index, caps, notes)
                except (NvmlError, ValueError) as error:
                    missed[index] = f"GPU {index}: {error}"
                    continue
            if gpu is not None and gpu.uuid in gpus:
                notes.append(f"GPU {index}: has the UUID {gpu.uuid} of GPU {gpus[gpu.uuid].index}; they count as one")
            if gpu is not None:
                gpus[gpu.uuid], handles[gpu.uuid] = gpu, handle
        lost = tuple(before[index] for index in missed if index in before and before[index].uuid not in gpus)
        if missed and not gpus and not lost:
            raise GpusFailed(missed.values())
        self.handles = handles
        self._missing = bool(missed)
        self._waited = self._waited if missed else 0
        if self._options.discovery is Discovery.AUTO and library.is_soc([gpu.name for gpu in gpus.values()]):
            kind = Platform.TEGRA
        return Snapshot(
            kind,
            tuple(gpus.values()) if kind is not Platform.TEGRA else (),
            lost,
            driver_version=nvml.driver_version(),
            cuda_version=nvml.cuda_version(),
            library=nvml.path,
            problems=(*missed.values(), *notes),
        )

    def _read(self, nvml: Nvml, handle: Handle, index: int, caps: Caps, notes: list[str]) -> Gpu | None:
        name = nvml.name(handle)
        if name in _DISPLAYS:
            return None
        uuid = check_uuid(nvml.uuid(handle))
        bus_id = sysfs_bus_id(nvml.bus_id(handle))
        minor = nvml.minor(handle)
        memory_bytes = 0
        try:
            memory_bytes = nvml.memory_bytes(handle)
        except NvmlError as error:
            if error.code in {GPU_IS_LOST, RESET_REQUIRED}:
                raise
        numa = None
        try:
            numa = read_numa(self._options.host_root, bus_id)
        except ValueError:
            notes.append(f"GPU {index}: numa_node of {bus_id} is no number of a node; it counts as unknown")
        mode = nvml.mig_mode(handle)
        return Gpu(
            uuid,
            index,
            minor,
            bus_id,
            name,
            memory_bytes,
            nvml.compute_capability(handle),
            numa,
            mig_capable=mode is not None,
            mig_enabled=mode == 1,
            migs=read_migs(nvml, handle, minor, memory_bytes, caps) if mode == 1 else (),
            coherent=_is_coherent(nvml, handle),
        )

    def links(self, snapshot: Snapshot) -> Links:
        """Between the GPUs of a look. Read once for a set of GPUs; one that is lost leaves what is known as it is."""
        known, links = self._links
        here = frozenset((gpu.uuid, gpu.bus_id) for gpu in snapshot.gpus)
        if self.nvml is not None and not here <= known:
            links = read_links(self.nvml, self.handles, snapshot.gpus)
            self._links = here, links
        return links

    # --- Single GPUs ----------------------------------------------------------------------------------------------

    def ask(self, uuid: str) -> None:
        """Asks a GPU something that it must answer itself. NvmlError when it does not."""
        nvml = self._session()
        with self._asking(uuid):
            handle = self.handles.get(uuid) or nvml.handle_by_uuid(uuid)
            nvml.uuid(handle)
            try:
                nvml.memory_bytes(handle)
            except NvmlError as error:
                if _is_gone(error):
                    raise

    def action(self, uuid: str) -> int | None:
        """What the driver wants done with a GPU: 0 for nothing; None where it does not say."""
        return self._read_of(uuid, lambda nvml, handle: nvml.recovery_action(handle))

    def rows(self, uuid: str) -> tuple[bool, bool] | None:
        """Whether rows or pages of its memory wait for a reset, and whether a remapping failed; None where unknown."""
        rows = self._read_of(uuid, lambda nvml, handle: nvml.rows(handle))
        pages = self._read_of(uuid, lambda nvml, handle: nvml.pages_pending(handle)) if rows is None else None
        return rows if pages is None else (pages, False)

    def usage(self, uuid: str) -> Usage:
        percent = self._read_of(uuid, lambda nvml, handle: nvml.utilization(handle))
        used = self._read_of(uuid, lambda nvml, handle: nvml.memory_used_bytes(handle))
        return Usage(None if percent is None else percent / 100, used)

    def _read_of(self, uuid: str, read: Callable[[Nvml, Handle], R]) -> R | None:
        nvml = self._session()
        if uuid in self.handles:
            with self._asking(uuid), suppress(NvmlError):
                return read(nvml, self.handles[uuid])
        return None

    def _session(self) -> Nvml:
        if self.nvml is None or not self._started:
            raise BackendError("there is no session with the driver")
        return self.nvml

    @contextmanager
    def _asking(self, gpu: str) -> Iterator[None]:
        self.busy_with = gpu
        try:
            yield
        finally:
            self.busy_with = ""


def check_uuid(uuid: str) -> str:
    """ValueError for what cannot be an id."""
    fits = uuid.startswith(("GPU-", "MIG-")) and uuid.isascii() and uuid.isprintable() and " " not in uuid
    if not fits or len(uuid) > SLOT_ID_MAX:
        raise ValueError(f"the driver says its UUID is {uuid!r:.80}, which is none")
    return uuid


def _is_coherent(nvml: Nvml, handle: Handle) -> bool:
    with suppress(NvmlError):
        return nvml.addressing_mode(handle) == ADDRESSING_ATS
    return False


def _is_gone(error: NvmlError) -> bool:
    """Whether it speaks of the GPU, and not of the question."""
    return error.code in {GPU_IS_LOST, RESET_REQUIRED, UNKNOWN}

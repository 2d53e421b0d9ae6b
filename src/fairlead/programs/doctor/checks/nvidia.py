"""Checks of NVIDIA GPUs by NVML and by the kernel's log: lost GPUs, XIDs, memory rows, MIG, MPS, events."""

from __future__ import annotations

from collections.abc import Iterator

from fairlead.backends.nvidia.faults import GPU_LOST, ROWS_FAILED, ROWS_PENDING, TABLE
from fairlead.backends.nvidia.spec import IGNORED_XIDS
from fairlead.programs.doctor.checks.words import NVIDIA, gpus, has_nvidia, listing, nvml, offered, our_set
from fairlead.programs.doctor.facts import Facts, Missing
from fairlead.programs.doctor.findings import DAEMON, HOST, Chapter, Seen, Severity, need

GPUS = Chapter("NVIDIA GPUs")
RESET = "nvidia-smi --gpu-reset -i {gpu}"
LOST_CODES = (GPU_LOST, "xid-79")
ROW_CODES = (ROWS_PENDING, ROWS_FAILED)
OFF_THE_BUS = 79


@GPUS.error("D16", "a GPU is lost", RESET, DAEMON, HOST)
def lost(facts: Facts) -> Iterator[Seen]:
    """It does not answer on the bus any more.

    Fairlead withdraws it; the pods that hold it fail. A reset may bring it back; if it does not, reboot the node, and
    look at power and seating when it comes again.
    """
    ones = {gpu.address: f"GPU at {gpu.address} reads as all ones" for gpu in gpus(facts, NVIDIA) if not gpu.answers}
    if not isinstance(facts.daemons, Missing):
        for device in offered(facts):
            if str(getattr(device, "cause", "")).startswith(LOST_CODES):
                where = device.pci_address or device.id
                ones.setdefault(where, f"{device.id}: {getattr(device, 'cause', '')}")
    if has_nvidia(facts) and not ones:
        for problem in nvml(facts).problems:
            if "NVML error 15" in problem:
                ones.setdefault(problem.partition(":")[0].removeprefix("GPU "), problem)
    for gpu, text in ones.items():
        yield Seen(text, {"gpu": gpu})


@GPUS.warning("D17", "the driver has reported XIDs since the boot", RESET, HOST)
def xids(facts: Facts) -> Iterator[Seen]:
    """An XID is the driver's report of a fault.

    Some are faults of a program, and end with it; others last until the GPU is reset. Fairlead withdraws a GPU for
    those that matter, and offers it again after the reset; a permanent one after `fairlead clear`.
    """
    for xid in need(facts.xids):
        entry = TABLE.get(f"xid-{xid.number}")
        meaning = entry.message if entry is not None else "not in the catalogue"
        text = f"XID {xid.number} ({meaning}) of {xid.bus_id}, {xid.count} times"
        if xid.number in IGNORED_XIDS:
            cure = "dmesg --ctime | grep -A3 'NVRM: Xid'  # the program that it names"
            yield Seen(f"{text}: a fault of a program", {}, cure, Severity.NOTE)
        elif xid.number == OFF_THE_BUS:
            yield Seen(text, {}, "systemctl reboot", Severity.ERROR)
        elif entry is not None and not entry.cured_by:
            yield Seen(f"{text}: the GPU is offered again after clean probes", {}, "fairlead status", Severity.NOTE)
        else:
            yield Seen(text, {"gpu": xid.bus_id})


@GPUS.error("D18", "memory rows wait for a reset, or could not be remapped", RESET)
def rows(facts: Facts) -> Iterator[Seen]:
    """A row of the GPU's memory is bad.

    Remapping takes effect at the next reset; a remapping that failed means that the GPU has no spare rows left and must
    be replaced.
    """
    if not has_nvidia(facts):
        return
    for gpu in nvml(facts).gpus:
        if gpu.rows_failed:
            cure = f"nvidia-smi -q -d ROW_REMAPPER -i {gpu.bus_id or gpu.index}  # replace the GPU"
            yield Seen(f"{gpu.uuid}: a remapping failed", cure=cure)
        elif gpu.rows_pending:
            yield Seen(f"{gpu.uuid}: rows or pages wait for a reset", {"gpu": gpu.bus_id or str(gpu.index)})


@GPUS.error(
    "D19", "MIG is on without instances, or with several sizes under `single`", "nvidia-smi mig -i {gpu} -cgi 0 -C"
)
def mig(facts: Facts) -> Iterator[Seen]:
    """A GPU in MIG mode without instances computes nothing and is not offered.

    Under mig: single all instances of a node must be of one kind; with several kinds nothing is offered. Create
    instances with `nvidia-smi mig -cgi PROFILE -C`, or use mig: mixed.
    """
    if not has_nvidia(facts):
        return
    cut = [gpu for gpu in nvml(facts).gpus if gpu.mig_enabled]
    for gpu in cut:
        if not gpu.profiles:
            yield Seen(f"{gpu.uuid}: MIG is on, and it has no instance", {"gpu": gpu.bus_id or str(gpu.index)})
    profiles = sorted({profile for gpu in cut for profile in gpu.profiles})
    if len(profiles) > 1:
        entries = [entry for entry in need(facts.config).backends if entry.get("kind") == "nvidia"]
        if any(entry.get("mig") == "single" for entry in entries):
            yield Seen(f"mig: single, and there are {listing(profiles)}", cure="fairlead nvidia --mig-strategy=mixed")


@GPUS.error(
    "D20",
    "a MIG instance has no device node",
    "find /proc/driver/nvidia/capabilities -name access -exec nvidia-modprobe -f {} ';'",
    HOST,
)
def mig_nodes(facts: Facts) -> Iterator[Seen]:
    """A container opens an instance by its nodes in /dev/nvidia-caps.

    An instance that was created since the boot has none until nvidia-modprobe makes them. Fairlead sees new instances
    at its next scan and writes its CDI specs anew.
    """
    if not has_nvidia(facts):
        return
    nodes = need(facts.dev).nodes
    for gpu in nvml(facts).gpus:
        if missing := [path for path in gpu.cap_paths if path not in nodes]:
            yield Seen(f"{gpu.uuid}: {listing(missing)} not there")


@GPUS.error(
    "D21",
    "an MPS control daemon is not reachable",
    "kubectl -n {namespace} rollout restart daemonset {name}-mps",
    DAEMON,
    HOST,
)
def mps(facts: Facts) -> Iterator[Seen]:
    """Containers that share a GPU by MPS connect to the control daemon through its pipe directory.

    Without it CUDA fails in all of them. `fairlead nvidia mps-daemon` runs it; the node needs the label
    nvidia.com/mps.capable=true.
    """
    for pipe in need(facts.mps):
        if pipe.problem:
            yield Seen(f"{pipe.resource}: {pipe.directory}: {pipe.problem}", our_set(facts))


@GPUS.note("D43", "the driver reports no events of a GPU", "fairlead config explain health.probeInterval")
def no_events(facts: Facts) -> Iterator[Seen]:
    """Some GPUs, and GPUs in some virtual machines, report no XIDs.

    Their health is then known from probes alone: a fault is noticed by the next probe that fails, not when it happens.
    """
    if not has_nvidia(facts):
        return
    for text in nvml(facts).deaf:
        yield Seen(text)


@GPUS.warning("D42", "two models under one resource name", "fairlead config explain rules.match.model")
def two_models(facts: Facts) -> Iterator[Seen]:
    """A pod that asks for the resource gets any of them.

    Give each model a rule and a name of its own, if programs care for memory or speed.
    """
    models: dict[str, dict[str, int]] = {}
    for device in offered(facts):
        if device.resource and device.model:
            counts = models.setdefault(device.resource, {})
            counts[device.model] = counts.get(device.model, 0) + 1
    for resource, counts in sorted(models.items()):
        if len(counts) > 1:
            yield Seen(f"{resource}: " + ", ".join(f"{count} x {model}" for model, count in sorted(counts.items())))

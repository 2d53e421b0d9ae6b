"""A pod's way through one kubelet process: admission, the fit on the node, the start of its containers.

Owns the steps and the pod's phase. Which devices it gets is decided by the admission, when to begin by the kubelet.
"""

from collections.abc import Iterable, Mapping

from fairlead.standin.admission import TopologyAffinityError
from fairlead.standin.errors import Rejected
from fairlead.standin.pods import Container, Pod, out_of
from fairlead.standin.process import Process


async def admit(process: Process, pod: Pod) -> None:
    """Get devices for all its containers; a refusal fails the pod."""
    try:
        await process.admission.admit(pod)
    except Rejected as error:
        if not process.stopped:  # a process that is going down decides nothing any more
            pod.fail("UnexpectedAdmissionError", f"Allocate failed due to {error}, which is unexpected")
    except TopologyAffinityError as error:
        pod.fail("TopologyAffinityError", str(error))
    show_devices(process, pod)


def check_fit(process: Process, pod: Pod, others: Iterable[Pod], allocatable: Mapping[str, int]) -> None:
    """The node's own count comes last, which is why a lack of devices seldom shows as OutOf."""
    owned = {}
    if pod.uid in process.pod_devices.pods():
        owned = {resource: len(ids) for resource, ids in process.node_devices.allocated.items()}
    if refusal := out_of(pod, others, allocatable, owned):
        pod.fail(*refusal)


async def start_all(process: Process, pod: Pod) -> None:
    """Start those that wait, in order; an init container ends at once, and one that cannot start holds the rest."""
    for container in [one for one in pod.containers.values() if one.state == "waiting"]:
        await start(process, pod, container)
        if container.state == "waiting" and container.kind != "app":
            for later in pod.of_kind("app"):
                later.wait("PodInitializing")
            break
        if container.kind == "init":
            container.state = "terminated"


async def start(process: Process, pod: Pod, container: Container) -> None:
    """Create the container, for the first time or again, on the devices it holds. If that fails it is tried again."""
    container.state = "waiting"
    try:
        options = await process.admission.run_options(pod, container)
    except Rejected as error:
        container.wait("CreateContainerConfigError", str(error))
        _try_again_later(process, pod)
    else:
        container.env, container.annotations = options.env, options.annotations
        container.mounts, container.nodes, container.cdi = options.mounts, options.nodes, options.cdi
        container.state, container.reason, container.message = "running", "", ""
        container.starts += 1
    show_devices(process, pod)
    if pod.is_active:
        pod.phase = "Running" if pod.has_started else "Pending"


def _try_again_later(process: Process, pod: Pod) -> None:
    if pod.uid not in process.retrying:
        process.retrying.add(pod.uid)
        process.tasks.spawn(_try_again(process, pod), f"try {pod.name} again")


async def _try_again(process: Process, pod: Pod) -> None:
    await process.pause()
    process.retrying.discard(pod.uid)
    if pod.is_active:
        await start_all(process, pod)
        process.changed()


def show_devices(process: Process, pod: Pod) -> None:
    for container in pod.containers.values():
        allocations = process.pod_devices.of_container(pod.uid, container.name)
        container.devices = {resource: tuple(sorted(allocation.ids)) for resource, allocation in allocations.items()}

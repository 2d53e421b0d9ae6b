"""One life of the kubelet process: from start to stop, crash or restart.

Owns the sockets, the connections and everything the process holds in memory. What outlives it (pods, the node
object, the record of calls) belongs to the kubelet that starts it and is handed in.
"""

import asyncio
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic

from fairlead.standin import checkpoint, podresources
from fairlead.standin._gen import deviceplugin_v1beta1_pb2 as dp
from fairlead.standin._gen import podresources_v1_pb2 as pr
from fairlead.standin.admission import Admission
from fairlead.standin.changes import Tasks
from fairlead.standin.devices import HEALTHY, UNHEALTHY, Device, Endpoint, NodeDevices
from fairlead.standin.errors import Rejected
from fairlead.standin.plugin import Plugin
from fairlead.standin.poddevices import Allocation, PodDevices
from fairlead.standin.pods import Pod
from fairlead.standin.registration import Registry
from fairlead.standin.servers import Services, Socket, clean, podresources_service, registration_service
from fairlead.standin.setup import Setup
from fairlead.standin.watcher import Watcher

_scratch_names = itertools.count()


class Process:
    def __init__(
        self,
        setup: Setup,
        pods: Callable[[], Sequence[Pod]],
        was_running: frozenset[tuple[str, str]],
        restart: Callable[[], None],
    ) -> None:
        self.stopped = False
        self.admitting = asyncio.Lock()
        self.tasks = Tasks()
        self.node_devices = NodeDevices()
        self.pod_devices = PodDevices()
        self.notes: list[str] = []
        self.retrying: set[str] = set()  # uids of pods some container of which will be tried again
        self._setup = setup
        self._pods = pods
        self.admission = Admission(
            node_devices=self.node_devices,
            pod_devices=self.pod_devices,
            setup=setup,
            save=self.save,
            active=lambda: {pod.uid for pod in pods() if pod.is_active},
            was_running=was_running,
            sources_ready=False,
        )
        self.registry = Registry(setup, self, self.tasks, restart)
        self._watcher = Watcher(setup, self.registry, self.tasks)
        limiter = podresources.Limiter(monotonic) if setup.rate_limit else None
        self._sockets = (
            self._socket(setup.plugin_dir, registration_service(self.registry.register)),
            self._socket(
                setup.podresources_dir,
                podresources_service(self.list_pods, self._get_pod, self._get_allocatable, limiter),
            ),
        )

    async def start(self) -> None:
        """Read the checkpoint, clean the directory, open the sockets."""
        for directory in (self._setup.plugin_dir, self._setup.registry_dir, self._setup.podresources_dir):
            directory.mkdir(mode=0o750, parents=True, exist_ok=True)
        self._restore()
        clean(self._setup.plugin_dir)
        for socket in self._sockets:
            await socket.start()
        self._watcher.start()

    async def stop(self) -> None:
        """End this life. Plugins see their streams break; the socket files stay."""
        self.stopped = True
        # The sockets first: a process that dies takes no call any more when its plugins see their streams break. A
        # Register that reached a server of gRPC's which was just stopping would hear nothing until its own deadline.
        for socket in self._sockets:
            await socket.stop()
        await self.tasks.cancel()
        await self._watcher.close()
        await self.registry.close()

    # What the plugins say.

    def connected(self, plugin: Plugin, options: dp.DevicePluginOptions) -> None:
        self.node_devices.endpoints[plugin.resource] = Endpoint(plugin, options)
        self._setup.changes.notify()

    def listed(self, resource: str, devices: Sequence[Device]) -> None:
        self.node_devices.replace(resource, devices)
        self.save()
        self._setup.changes.notify()

    def disconnected(self, resource: str) -> None:
        self.node_devices.stop(resource, self._setup.clock.now())
        self._setup.changes.notify()

    # What the rest of the kubelet asks.

    def expire(self) -> tuple[str, ...]:
        """Drop the resources whose plugin stayed away too long, and name them."""
        gone = self.node_devices.expire(self._setup.clock.now(), self._setup.timings.grace_s)
        if gone:
            self.save()
        return gone

    async def pause(self) -> None:
        """The time before a container that cannot be created is tried again."""
        await self._setup.clock.sleep(self._setup.timings.retry_s)

    def changed(self) -> None:
        self._setup.changes.notify()

    def allocated_status(self, pod: Pod) -> dict[str, dict[str, dict[str, str]]]:
        """Health of each app container's devices, from the last list alone.

        A plugin that went away changes nothing here, and a device no longer listed reads healthy.
        """
        return {
            container.name: {
                resource: {i: self._listed_health(resource, i) for i in sorted(allocation.ids)}
                for resource, allocation in self.pod_devices.of_container(pod.uid, container.name).items()
            }
            for container in pod.of_kind("app")
        }

    def list_pods(self) -> pr.ListPodResourcesResponse:
        self.admission.free_inactive()
        return podresources.list_pods(self._pods(), self.pod_devices, self._setup.rng)

    def save(self) -> None:
        """Write the checkpoint."""
        entries = [
            checkpoint.Entry(uid, container, resource, allocation.by_node, allocation.response.SerializeToString())
            for (uid, container, resource), allocation in self.pod_devices
        ]
        registered = {resource: sorted(ids) for resource, ids in self.node_devices.healthy.items()}
        checkpoint.write(self._setup.plugin_dir, checkpoint.Checkpoint(entries or None, registered))

    def _restore(self) -> None:
        try:
            data = checkpoint.read(self._setup.plugin_dir)
        except checkpoint.Corrupt as error:
            self.notes.append(f"{error}; starting with nothing allocated")
            return
        if data is None:
            return
        for entry in data.entries or ():
            by_node = {node: tuple(ids) for node, ids in entry.by_node.items()}
            answer = dp.ContainerAllocateResponse.FromString(entry.answer)
            self.pod_devices.put(entry.uid, entry.container, entry.resource, Allocation(by_node, answer))
        self.node_devices.allocated = self.pod_devices.allocated()
        self.node_devices.restore(data.registered, self._setup.clock.now())

    def _listed_health(self, resource: str, device_id: str) -> str:
        device = self.node_devices.all.get(resource, {}).get(device_id)
        return HEALTHY if device is None or device.health == HEALTHY else UNHEALTHY

    def _get_allocatable(self) -> pr.AllocatableResourcesResponse:
        return podresources.allocatable(self.node_devices, self._setup.rng)

    def _get_pod(self, name: str, namespace: str) -> pr.PodResources:
        for pod in self._pods():
            if pod.is_active and (pod.name, pod.namespace) == (name, namespace):
                return podresources.describe(pod, self.pod_devices, self._setup.rng)
        raise Rejected(f"pod {name} in namespace {namespace} not found")

    def _socket(self, directory: Path, services: Services) -> Socket:
        scratch = self._setup.root / f".s{next(_scratch_names)}"
        return Socket(directory / "kubelet.sock", scratch, services)

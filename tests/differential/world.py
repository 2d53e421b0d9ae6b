"""What a scenario may do to a kubelet, whichever it is, and what it may see of it.

Owns the interface between scenarios and the two worlds. Must not know either of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

Limits = Mapping[str, int]
# Env, mounts and annotations that scenarios hand out carry these, so that a runtime's own can be told apart.
ENV, PLACE, NOTE = "DIFF_", "/diff", "diff.example/"
CDI_KIND = "diff.example/device"


@dataclass(frozen=True, slots=True)
class PodSpec:
    name: str
    containers: Mapping[str, Limits]
    init: Mapping[str, Limits] = field(default_factory=dict)
    sidecars: Mapping[str, Limits] = field(default_factory=dict)
    once: bool = False  # a container that ends is not started again
    image: bool = True  # else its image cannot be had, and it waits for it

    def resources(self) -> set[str]:
        groups = (self.containers, self.init, self.sidecars)
        return {name for group in groups for limits in group.values() for name in limits}


class World(Protocol):
    """One kubelet and what is around it."""

    @property
    def plugin_dir(self) -> Path: ...
    @property
    def registry_dir(self) -> Path: ...
    @property
    def podresources(self) -> Path: ...
    @property
    def directories(self) -> list[str]:
        """Both directories for sockets, under every name that may be told."""

    def seen_from_inside(self, path: Path) -> Path:
        """What the kubelet calls a file in one of them."""

    @property
    def patience_s(self) -> float:
        """How long what is hoped for may take."""

    async def stop_kubelet(self) -> None: ...
    async def start_kubelet(self, *, reboot: bool = False) -> None:
        """Returns when it has its sockets and has looked at its pods. `reboot`: no container runs any more."""

    async def is_alive(self) -> bool:
        """Whether the kubelet still runs, soon after something that might have ended it."""

    async def revive(self) -> None:
        """A kubelet that has crashed is started again."""

    async def outlast(self) -> None:
        """The time for which a kubelet remembers a plugin that has gone, and a little more."""

    async def settle(self) -> None:
        """Returns when what has been set off by now has had its effect."""

    async def run_pod(self, pod: PodSpec) -> None:
        """Returns when it runs, has failed, or waits for something that will not come."""

    async def look(self, pod: str) -> dict[str, Any] | None:
        """Phase, reason, message; and while it lives the state of each container. None when it is gone."""

    async def uid(self, pod: str) -> str: ...
    async def received(self, pod: str, container: str) -> dict[str, Any]:
        """What the runtime was told for a container: env, mounts, devices, annotations, cdi."""

    async def health(self, pod: str) -> dict[str, Any]:
        """The health of the devices of each container, as the pod's status tells it."""

    async def crash(self, pod: str, container: str) -> None:
        """The container's process is killed. Returns when the kubelet has dealt with it."""

    async def finish(self, pod: str) -> None:
        """All its containers end well."""

    async def delete(self, pod: str) -> None: ...
    async def forget(self, pod: str) -> None:
        """The API server forgets it at once, whatever the kubelet is doing."""

    async def numbers(self, resource: str) -> list[int] | None:
        """Allocatable and capacity of the node, None if it does not list the resource."""

    async def offer_cdi(self, names: list[str]) -> None:
        """The runtime knows CDI devices of these names."""

"""The configurations the campaign swaps between, and what each must lead to. Its own simple arithmetic, on purpose:
an oracle that asked the engine would agree with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fairlead.model.device import Device

NVIDIA, AMD, LOW, ODD = "nvidia.com/gpu", "amd.com/gpu", "example.com/low", "example.com/odd"

LEFT = """
  - kind: sim
    name: left
    fleet: {name: left, devices: [{count: 4, vendor: nvidia, model: H100, memory: 80GiB, numa: [0, 1]}]}"""
# Its devices are prepared before each start of a container.
RIGHT = """
  - kind: drill
    name: right
    fleet: {name: right, devices: [{count: 3, id: "MI-{n}", vendor: amd, model: MI300X, memory: 192GiB}]}"""
THIRD = """
  - kind: sim
    name: third
    fleet: {name: third, devices: [{count: 2, id: "ODD-{n}", vendor: acme}]}"""
HEALTH = "\nhealth: {hold: 10s, probation: 10s, suspect: 20s}"
PLAIN = """
rules:
  - {match: {vendor: nvidia}, resource: nvidia.com/gpu}
  - {match: {vendor: amd}, resource: amd.com/gpu}"""
SHARED = """
rules:
  - {match: {vendor: nvidia}, resource: nvidia.com/gpu, replicas: 3, placement: spread}
  - {match: {vendor: amd}, resource: amd.com/gpu}"""
NARROW = """
rules:
  - {match: {vendor: amd}, exclude: true}
  - {resource: nvidia.com/gpu}"""
SPLIT = """
rules:
  - {match: {vendor: nvidia, index: [0, 1]}, resource: example.com/low}
  - {match: {vendor: nvidia}, resource: nvidia.com/gpu}
  - {match: {vendor: amd}, resource: amd.com/gpu, replicas: 2}"""
MORE = f"{PLAIN}\n  - {{match: {{vendor: acme}}, resource: example.com/odd}}"

Share = tuple[str, int]  # resource, replicas


@dataclass(frozen=True, slots=True)
class Variant:
    name: str
    text: str
    backends: frozenset[str]
    share: Callable[[Device], Share | None]

    def expected(self, devices: list[Device]) -> dict[str, set[str]]:
        """Resource -> the ids that must be offered when these devices are there."""
        found: dict[str, set[str]] = {}
        for device in devices:
            if (share := self.share(device)) is not None:
                resource, replicas = share
                ids = {device.id} if replicas == 1 else {f"{device.id}::{k}" for k in range(replicas)}
                found.setdefault(resource, set()).update(ids)
        return found


def by_vendor(table: Mapping[str, Share]) -> Callable[[Device], Share | None]:
    return lambda device: table.get(device.vendor)


def _split(device: Device) -> Share | None:
    if device.vendor == "nvidia":
        return (LOW if device.index in {"0", "1"} else NVIDIA), 1
    return (AMD, 2) if device.vendor == "amd" else None


BOTH = frozenset({"left", "right"})
_PLAIN = by_vendor({"nvidia": (NVIDIA, 1), "amd": (AMD, 1)})
VARIANTS = (
    Variant("plain", f"backends:{LEFT}{RIGHT}{PLAIN}{HEALTH}", BOTH, _PLAIN),
    Variant(
        "shared",
        f"backends:{LEFT}{RIGHT}{SHARED}{HEALTH}",
        BOTH,
        by_vendor({"nvidia": (NVIDIA, 3), "amd": (AMD, 1)}),
    ),
    Variant("narrow", f"backends:{LEFT}{RIGHT}{NARROW}{HEALTH}", BOTH, by_vendor({"nvidia": (NVIDIA, 1)})),
    Variant("split", f"backends:{LEFT}{RIGHT}{SPLIT}{HEALTH}", BOTH, _split),
    Variant(
        "more",
        f"backends:{LEFT}{RIGHT}{THIRD}{MORE}{HEALTH}",
        BOTH | {"third"},
        by_vendor({"nvidia": (NVIDIA, 1), "amd": (AMD, 1), "acme": (ODD, 1)}),
    ),
    # The rule stays, its devices go.
    Variant("fewer", f"backends:{LEFT}{PLAIN}{HEALTH}", frozenset({"left"}), _PLAIN),
    # Another fleet under a known name: the source is replaced.
    Variant("refit", f"backends:{LEFT.replace('count: 4', 'count: 6')}{RIGHT}{PLAIN}{HEALTH}", BOTH, _PLAIN),
    # Another tempo: sources run on.
    Variant("brisk", f"backends:{LEFT}{RIGHT}{PLAIN}{HEALTH}\nscan: {{interval: 20s}}", BOTH, _PLAIN),
)
BAD = (
    "backends: [{kind: sim\n",
    "rulez: []\n",
    f"backends:{LEFT}\nrules: [{{resource: nvidia.com/gpu, replicas: 0}}]\n",
    "backends: [{kind: nosuch}]\nrules: [{resource: nvidia.com/gpu}]\n",
    "backends: [{kind: sim, fleet: nosuch}]\nrules: [{resource: nvidia.com/gpu}]\n",
    "\x00\x01",
    "",
)

"""Simulated fleets, their timelines and orders by hand: damaged ones are refused in words, and change nothing."""

from __future__ import annotations

import random
from typing import Any

from tests.clock import FakeClock
from tests.fuzz.mutate import damage_data
from tests.fuzz.targets import promise

from fairlead.backends.sim import open_backend
from fairlead.model.errors import BackendError, UsageError

FLEETS: tuple[dict[str, Any], ...] = (
    {"fleet": {"name": "a", "devices": [{"count": 3, "vendor": "nvidia", "memory": "80GiB", "numa": [0, 1, 1]}]}},
    {
        "fleet": {
            "devices": [
                {"count": 2, "id": "D{n}", "pci": ["0000:01:00.0", "0000:02:00.0"], "links": "nvswitch"},
                {"count": 2, "partitions": [{"count": 2, "memory": 1000}], "nodes": ["/dev/n{i}"]},
            ],
            "timeline": [{"at": "1s", "do": "fail", "device": 0}, {"at": 2, "do": "recover"}],
        },
        "speed": 10,
    },
    {"fleet": "small", "timeline": [{"at": "1s", "do": "unplug", "device": 0}, {"at": 9, "do": "plug", "device": 0}]},
)
ORDERS: tuple[dict[str, Any], ...] = (
    {"do": "fail", "device": 0, "xid": 79},
    {"do": "fail", "device": "0", "code": "x", "kind": "permanent", "message": "m"},
    {"do": "flap", "device": 1, "times": 3, "every": "2s"},
    {"do": "clear", "device": 0, "code": "x"},
    {"do": "recover"},
    {"do": "recover", "device": 0, "silent": True},
    {"do": "unplug", "device": 0},
    {"do": "plug", "device": 0},
    {"do": "plug", "new": {"count": 2, "id": "N{n}", "vendor": "amd"}},
    {"do": "slow", "device": 0, "takes": "5ms"},
    {"do": "hang", "device": 0},
    {"do": "scan-error", "message": "no"},
    {"do": "scan-slow", "takes": 0},
)


class SimTarget:
    block = 500

    async def start(self) -> None:
        self._clock = FakeClock()

    async def case(self, rng: random.Random) -> None:
        options = damage_data(rng, rng.choice(FLEETS)) if rng.random() < 0.8 else rng.choice(FLEETS)
        try:
            backend = open_backend(options if isinstance(options, dict) else {"fleet": options}, self._clock)
        except UsageError as error:  # ConfigError is one
            promise(str(error), "an error says nothing")
            return
        for _ in range(rng.randint(0, 4)):
            order = damage_data(rng, rng.choice(ORDERS))
            try:
                promise(backend.steer(order if isinstance(order, dict) else {"do": order}), "an order says nothing")
            except UsageError as error:
                promise(str(error), "an error says nothing")
        if backend._hardware.scan_takes_s:
            return
        try:
            found = await backend.discover()
        except BackendError:
            return
        ids = [device.id for device in found.devices]
        promise(len(ids) == len(set(ids)), "two devices have one id")

    async def stop(self) -> None:
        pass

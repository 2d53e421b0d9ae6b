"""Configuration files: any text either holds or is a ConfigError that says something. Backends open or say why not."""

from __future__ import annotations

import json
import random

from tests.clock import FakeClock
from tests.fuzz.mutate import damage_data, damage_text
from tests.fuzz.targets import promise

from fairlead.app.backends import open_backends
from fairlead.config.load import build, parse
from fairlead.model.errors import ConfigError

SEEDS = (
    {
        "backends": [{"kind": "sim", "fleet": "small"}],
        "rules": [{"resource": "nvidia.com/gpu", "replicas": 4, "placement": "pack"}],
        "health": {"hold": "10s", "cleanProbes": 2, "holdGrowth": 1.5},
    },
    {
        "backends": [{"kind": "paths", "name": "nics", "devices": [{"name": "nic", "paths": ["/dev/nic*"]}]}],
        "rules": [
            {
                "match": {"id": ["a*", "b?"], "memory": ">=40GiB", "numa": [0, 1], "index": [0, "1:*"]},
                "resource": "example.com/nic",
                "env": {"IDS": "{ids}", "N": "{count}"},
                "annotations": {"a/b": "{resource}"},
                "mounts": [{"host": "/usr/lib/x", "container": "/x", "readOnly": False}],
                "devices": [{"host": "/dev/ctl", "permissions": "rw"}],
            },
            {"match": {"vendor": "amd"}, "exclude": True},
        ],
        "kubelet": {"directory": "/tmp/k", "registration": "watcher", "podResources": ""},
        "scan": {"interval": "5m", "deadline": 3},
        "status": {"socket": ""},
        "log": {"format": "json"},
        "instance": "two",
    },
)
YAML = """\
# one comment
backends:
  - kind: sim
    fleet: {devices: [{count: 2, vendor: nvidia, memory: 4GiB}]}
    timeline:
      - {at: 5s, do: fail, device: 0, xid: 79}
rules:
  - match: {vendor: [nvidia, 'NV*'], index: 0}
    resource: nvidia.com/gpu
    replicas: 2
  - exclude: true
health: {probeInterval: 20ms, hold: 1m}
kubelet: &k {directory: /tmp/k}
"""


class ConfigTarget:
    block = 500

    async def start(self) -> None:
        self._clock = FakeClock()

    async def case(self, rng: random.Random) -> None:
        try:
            match rng.randrange(10):
                case 0:
                    loaded = parse(damage_text(rng, YAML), "fuzz")
                case 1:
                    loaded = parse(damage_text(rng, json.dumps(rng.choice(SEEDS))), "fuzz")
                case _:
                    raw = damage_data(rng, rng.choice(SEEDS))
                    loaded = build(raw if isinstance(raw, dict) else {"rules": raw}, "fuzz")
            backends = open_backends(loaded, self._clock)
        except ConfigError as error:
            promise(error.problems, "a ConfigError names no problem")
            promise("Traceback" not in str(error), "an error shows a traceback")
            return
        promise(backends and loaded.rules, "a configuration holds without backends or rules")

    async def stop(self) -> None:
        pass

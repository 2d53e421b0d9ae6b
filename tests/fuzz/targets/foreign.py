"""Config files of other systems' plugins: any text is a configuration that opens, or an error that says why."""

from __future__ import annotations

import json
import random
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.clock import FakeClock
from tests.fuzz.good import GENERIC, GKE, NVIDIA, SMARTER, VOLCANO
from tests.fuzz.mutate import damage_data, damage_text
from tests.fuzz.targets import promise

from fairlead.app.backends import open_backends
from fairlead.config.load import build
from fairlead.dialects.generic.command import read_command_line as generic
from fairlead.dialects.gke.command import read_command_line as gke
from fairlead.dialects.nvidia.command import read_command_line as nvidia
from fairlead.dialects.smarter.command import read_command_line as smarter
from fairlead.dialects.volcano.command import read_command_line as volcano
from fairlead.model.errors import ConfigError, FairleadError
from fairlead.model.ports import Closes

WAYS = (
    ("--config", generic, GENERIC),
    ("--config", smarter, SMARTER),
    ("--gpu-config", gke, GKE),
    ("--config-file", nvidia, NVIDIA),
    ("--config-file", volcano, VOLCANO),
)


class ForeignTarget:
    block = 200

    async def start(self) -> None:
        self._folder = TemporaryDirectory()
        self._file = Path(self._folder.name) / "config.yaml"

    async def case(self, rng: random.Random) -> None:
        flag, read, good = rng.choice(WAYS)
        plain = json.dumps(good)
        text = damage_text(rng, plain) if rng.randrange(4) == 0 else json.dumps(damage_data(rng, json.loads(plain)))
        self._file.write_bytes(text.encode(errors="surrogatepass"))
        try:
            loaded = build(dict(read([flag, str(self._file)], {"NODE_NAME": "n"}).translate().config), "fuzz")
            backends = open_backends(loaded, FakeClock())
        except FairleadError as error:
            promise(not isinstance(error, ConfigError) or error.problems, "a ConfigError names no problem")
            promise(str(error), "an error says nothing")
            return
        promise(backends and loaded.rules, "a configuration holds without backends or rules")
        for backend in backends.values():
            if isinstance(backend, Closes):
                await backend.close()

    async def stop(self) -> None:
        self._folder.cleanup()

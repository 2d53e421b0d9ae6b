"""The LEDs of a node as devices: a backend in a package of its own. Pods get the directory of their LED."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

import fairlead
from fairlead.kit.decoding import convert


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    directory: str = "/sys/class/leds"


class Leds:
    name = "leds"

    def __init__(self, options: Options, clock: fairlead.Clock) -> None:
        self._directory = Path(options.directory)
        self._owner = fairlead.Owner("leds", clock)  # a thread for what may block

    async def discover(self) -> fairlead.Findings:
        return await self._owner.call(self._look, what="the LEDs")

    def _look(self) -> fairlead.Findings:
        if not self._directory.is_dir():
            raise fairlead.NotYet(f"{self._directory} is not there. Load the driver of the LEDs")
        found = sorted(path for path in self._directory.iterdir() if (path / "brightness").is_file())
        return fairlead.Findings(tuple(fairlead.Device(path.name, model="led") for path in found))

    async def probe(self, device: fairlead.Device) -> fairlead.Cause | None:
        lit = await self._owner.call((self._directory / device.id / "brightness").read_text)
        if lit.strip().isdigit():
            return None
        return fairlead.Cause("no-brightness", fairlead.CauseKind.NEEDS_RESET, f"its brightness is {lit!r:.20}")

    def edits(self, grant: fairlead.Grant) -> fairlead.Edits:
        places = [f"{self._directory}/{device.id}" for device in grant.devices]
        mounts = tuple(fairlead.Mount(place, place, read_only=False) for place in places)
        return fairlead.Edits(env={"LEDS": ",".join(places)}, mounts=mounts)

    async def close(self) -> None:
        self._owner.close()


def open_backend(options: Mapping[str, Any], clock: fairlead.Clock) -> Leds:
    return Leds(convert(dict(options), Options, "leds"), clock)

"""Kubernetes' sample device plugin, with the library: two devices; each a mount and a CDI device in its container.

With a control file it registers only when somebody deletes that file, after a kubelet restart too.
"""

import json
import os
from pathlib import Path

import fairlead

NAMES = ("Dev-1", "Dev-2")
CDI = Path("/var/run/cdi/example.com.json")
PLACE = "/tmp"  # noqa: S108 - where Kubernetes' tests look for them
CONTROL = os.environ.get("REGISTER_CONTROL_FILE", "")
# Here, before the library is loaded by its first use: the file may be deleted a second after the start.
ARMED = bool(CONTROL) and Path(CONTROL).exists()


class Sample(fairlead.Plugin):
    resource = "example.com/resource"
    with_cdi = bool(os.environ.get("CDI_ENABLED"))
    armed = ARMED

    def discover(self) -> list[fairlead.Device]:
        """What exists. The runtime must know the CDI devices before the first container asks for one."""
        if self.with_cdi:
            beside = CDI.with_suffix(".new")
            beside.write_text(json.dumps(cdi_spec()))
            beside.replace(CDI)
        return [fairlead.Device(name) for name in NAMES]

    def edits(self, grant: fairlead.Grant) -> fairlead.Edits:
        """What the container gets: a mount for each device, and its CDI device."""
        names = [device.id for device in grant.devices]
        mounts = tuple(fairlead.Mount(f"{PLACE}/{name}", f"{PLACE}/{name}", read_only=False) for name in names)
        cdi = tuple(f"{self.resource}=CDI-{name}" for name in names) if self.with_cdi else ()
        return fairlead.Edits(mounts=mounts, cdi=cdi)

    def wait_for(self) -> str | None:
        """A file that is not there keeps it from registering; one that goes is the word to do it."""
        if not CONTROL:
            return None
        armed, self.armed = self.armed, Path(CONTROL).exists()
        return None if armed and not self.armed else f"{CONTROL} to be deleted"


def cdi_spec() -> dict[str, object]:
    def device(number: int, name: str) -> dict[str, object]:
        node = {"path": f"{PLACE}/CDI-{name}", "type": "b", "major": 1, "minor": number}
        return {"name": f"CDI-{name}", "containerEdits": {"env": [f"CDI_DEVICE=CDI-{name}"], "deviceNodes": [node]}}

    devices = [device(number, name) for number, name in enumerate(NAMES)]
    return {"cdiVersion": "0.3.0", "kind": Sample.resource, "devices": devices}


if __name__ == "__main__":
    fairlead.run(Sample(), plugin_dir=os.environ.get("PLUGIN_SOCK_DIR"))

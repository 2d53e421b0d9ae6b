"""Every USB serial port as a resource, with a health check and a variable for the container."""

import os
from collections.abc import Iterator
from pathlib import Path

import fairlead

DEV = Path(os.environ.get("DEV_ROOT", "/dev"))


class SerialPorts(fairlead.Plugin):
    resource = "example.com/serial-port"

    def discover(self) -> Iterator[fairlead.Device]:
        """What exists now. Called again and again: plug one in, and it is offered."""
        for path in sorted(DEV.glob("ttyUSB*")):
            yield fairlead.Device(path.name, vendor="usb", nodes=(fairlead.DeviceNode(str(path)),))

    def check(self, device: fairlead.Device) -> str | None:
        """What is wrong with it, or None. A port that is wrong is withdrawn, and comes back when it is right again."""
        return None if os.access(device.nodes[0].path, os.R_OK | os.W_OK) else "cannot be opened"

    def edits(self, grant: fairlead.Grant) -> fairlead.Edits:
        """What the container gets: the device nodes, and a variable that names them."""
        nodes = tuple(node for device in grant.devices for node in device.nodes)
        return fairlead.Edits(env={"SERIAL_PORTS": ",".join(node.path for node in nodes)}, nodes=nodes)


if __name__ == "__main__":
    fairlead.run(SerialPorts())

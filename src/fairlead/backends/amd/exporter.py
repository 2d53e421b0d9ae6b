"""AMD's metrics exporter, where it runs on the node: which devices it holds to be unhealthy.

A socket that is not there is no exporter, and says nothing. One that does not answer is no cure: what it said last
stands until it answers, or is gone.
"""

from __future__ import annotations

import asyncio
import os

from fairlead.model.device import Device
from fairlead.model.names import DeviceId
from fairlead.wire.rpc import Channel, Limits, RpcError

TIMEOUT_S = 2.0  # for connecting and asking together
ANSWER_MAX_BYTES = 2**20
UNHEALTHY = "unhealthy"


class Exporter:
    def __init__(self, socket: str) -> None:
        self._socket = socket
        self.unhealthy: frozenset[DeviceId] = frozenset()
        self.problem = ""

    def says_unhealthy(self, device: Device) -> bool:
        """A GPU that it names reaches all that is cut from it."""
        return bool(self.unhealthy & {device.id, device.pci_address})

    async def ask(self) -> None:
        """Never raises: without an answer, everything else that is known of a device still counts."""
        if not os.path.exists(self._socket):  # noqa: ASYNC240, PTH110 - one stat of a local file
            self.unhealthy, self.problem = frozenset(), ""
            return
        from fairlead.wire import amdmetrics  # noqa: PLC0415 - most nodes have no exporter

        loop = asyncio.get_running_loop()
        ends_s = loop.time() + TIMEOUT_S
        try:
            limits = Limits(message_bytes=ANSWER_MAX_BYTES)
            channel = await Channel.connect(self._socket, timeout_s=TIMEOUT_S, limits=limits)
            try:
                left_s = max(0.05, ends_s - loop.time())
                answer = await channel.unary(amdmetrics.LIST, amdmetrics.Empty(), timeout_s=left_s)
            finally:
                await channel.close()
        except RpcError as error:
            self.problem = f"AMD's metrics exporter at {self._socket}: {error.status.name.lower()}: {error.message}"
            return
        self.problem = ""
        # AMD's own plugin compares the word as it is written; a capital letter must not hide a fault.
        self.unhealthy = frozenset(state.device for state in answer.gpu_state if state.health.lower() == UNHEALTHY)

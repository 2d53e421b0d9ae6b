"""A TCP relay before the API server, which can fall silent on the connections that it has: as a bad proxy does."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from dataclasses import dataclass

from tests.node.rig.places import HOST


@dataclass
class _Pair:
    client: socket.socket
    server: socket.socket
    muted: bool = False

    def close(self) -> None:
        for end in (self.client, self.server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


class Relay:
    def __init__(self, port: int, at: tuple[str, int] = (HOST, 0)) -> None:
        self._target = port
        self._pairs: list[_Pair] = []
        self._listener = socket.create_server(at)
        self.port = self._listener.getsockname()[1]
        self._start(self._accept)

    def mute(self) -> int:
        """From now on the connections that there are bring nothing from the server. How many they are."""
        open_ones = [pair for pair in self._pairs if pair.client.fileno() >= 0 and not pair.muted]
        for pair in open_ones:
            pair.muted = True
        return len(open_ones)

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for pair in self._pairs:
            pair.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection((HOST, self._target))
                except OSError:
                    client.close()
                    continue
                pair = _Pair(client, server)
                self._pairs.append(pair)
                self._start(lambda pair=pair: self._pump(pair, pair.client, pair.server))
                self._start(lambda pair=pair: self._pump(pair, pair.server, pair.client))

    @staticmethod
    def _pump(pair: _Pair, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if not (pair.muted and source is pair.server):
                    target.sendall(data)
        if not pair.muted:
            pair.close()

    @staticmethod
    def _start(work: object) -> None:
        threading.Thread(target=work, daemon=True).start()  # type: ignore[arg-type]  # a callable, of lambdas

"""Listening on an address as people write it. Knows nothing of what is spoken there."""

from __future__ import annotations

import socket


def listen_tcp(address: str, backlog: int) -> socket.socket:
    """`127.0.0.1:9402`, `[::1]:9402`, or `:9402` for every address of the host. ValueError when it is none of these."""
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdecimal() or not int(port) < 1 << 16:
        raise ValueError(f"{address!r} is not an address and a port")
    host = host.removeprefix("[").removesuffix("]")
    try:
        return socket.create_server(
            (host, int(port)),
            family=socket.AF_INET6 if ":" in host or not host else socket.AF_INET,
            dualstack_ipv6=not host and socket.has_dualstack_ipv6(),
            backlog=backlog,
        )
    except OSError as error:  # Python adds the address, as it writes one; the caller names it as people do
        raise OSError(error.errno, (error.strerror or str(error)).partition(" (while ")[0]) from error


def local_url(address: str, port: int) -> str:
    """How a browser on this host calls what listens there."""
    host = address.rpartition(":")[0]
    return f"http://{'127.0.0.1' if host in {'', '0.0.0.0', '[::]'} else host}:{port}/"  # noqa: S104 - read, not bound

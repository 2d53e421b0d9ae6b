"""What a client may take from the server: sizes, counts and times. And how much of it is taken, for metrics."""

from __future__ import annotations

from collections import Counter

from msgspec import Struct

KIB, MIB = 2**10, 2**20


class Limits(Struct, frozen=True):
    """Bodies take at most `bodies_bytes`, and `small_body_bytes` more for each connection."""

    head_bytes: int = 16 * KIB  # also of the trailers of a body
    headers: int = 100
    body_bytes: int = 64 * MIB
    bodies_bytes: int = 256 * MIB  # of all connections; a larger body waits
    small_body_bytes: int = MIB  # does not wait: the calls of the scheduler are this small
    connections: int = 1000  # and as many TLS handshakes
    handshake_s: float = 10.0
    head_s: float = 10.0  # from its first byte
    admission_s: float = 5.0  # for a large body until there is room
    body_s: float = 30.0
    progress_s: float = 5.0  # within each such time of a body
    progress_bytes: int = 16 * KIB  # so much must come
    idle_s: float = 120.0  # Go's clients give up a connection after 90 s: they, not we, should be the first
    handler_s: float = 30.0
    write_s: float = 30.0  # until the client has read an answer
    linger_s: float = 1.0  # for a refused client to read why, while it may still be sending

    def __post_init__(self) -> None:
        if not self.small_body_bytes <= self.body_bytes <= self.bodies_bytes:
            raise ValueError(
                f"small_body_bytes ({self.small_body_bytes:,}), body_bytes ({self.body_bytes:,}) and "
                f"bodies_bytes ({self.bodies_bytes:,}) must not fall: a body that never fits would wait for nothing"
            )


class Counters:
    """Plain numbers. A path that is not served counts as an empty one: clients must not be able to make names."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()  # by path and status
        self.connections = 0  # open now
        self.accepted = 0
        self.refused = 0  # with 503, because there were too many
        self.evicted = 0  # closed while they waited, to make room for others
        self.handshakes_failed = 0
        self.bytes_in_flight = 0  # of bodies, as far as they are promised room
        self.bodies_waiting = 0  # for room
        self.abandoned = 0  # connections that were ended because the client was too slow

"""Every bound the wire puts on a peer, in one place, each with its reason. Knows no protocol."""

from __future__ import annotations

from msgspec import Struct

KIB = 1024
MIB = 1024 * KIB

# gRPC's own default in every language. The kubelet keeps it, so a longer message would be refused there anyway.
MAX_MESSAGE_BYTES = 4 * MIB


class Limits(Struct, frozen=True):
    """What one connection may cost us. The defaults suit a kubelet on a unix socket."""

    # One message, either way in.
    message_bytes: int = MAX_MESSAGE_BYTES
    # Requests still arriving, over all streams of a connection: 128 streams of 4 MiB each must not add up.
    request_bytes: int = 16 * MIB
    # Answers a peer has asked for and does not read. Beyond it the peer is cut off.
    queue_bytes: int = 32 * MIB
    # The same over all connections of a socket: beyond it the one with the most is cut off.
    server_queue_bytes: int = 64 * MIB
    # Handed to the transport in one go. The rest stays a view of the message, which all who wait for it share.
    burst_bytes: int = 256 * KIB
    # The kubelet has one per registration, and a second one while it registers. Beyond it the idlest is closed.
    connections: int = 64
    # A connection without a call. The kubelet's has its stream; other clients connect again when they need to.
    idle_s: float = 300.0
    # The kubelet has a handful of calls open per plugin; grpc-go's and h2's customary figure is the same size.
    concurrent_streams: int = 128
    # Decoded header list (RFC 9113, 10.5.1). gRPC peers send under 1 KiB and announce at most 16 KiB.
    header_list_bytes: int = 32 * KIB
    # A header block split over frames: the compressed size, and the frames (empty CONTINUATIONs cost nothing to send).
    header_block_bytes: int = 32 * KIB
    continuation_frames: int = 16
    # Window offered per stream and per connection: one list of 60,000 devices flows without a stop every 64 KiB.
    stream_window_bytes: int = MIB
    connection_window_bytes: int = 4 * MIB
    # Floods are counted over this time. Long enough to see one, short enough to forgive a burst.
    flood_window_s: float = 10.0
    # Streams opened and reset, or driven into a stream error, instead of being answered ("rapid reset").
    resets: int = 1000
    # PING, SETTINGS, PRIORITY, unknown and empty DATA frames between two pieces of real work. grpc-go pings once per
    # round trip while it measures bandwidth, so only idle chatter counts.
    idle_frames: int = 1000
    # A client that connects and says nothing, or says half a preface.
    preface_s: float = 10.0
    # A peer with output waiting that takes none of it. Not the kubelet: a long list keeps it busy for a minute.
    stall_s: float = 30.0

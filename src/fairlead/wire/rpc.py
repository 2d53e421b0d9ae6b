"""gRPC as the rest of Fairlead uses it. One name per thing; the files behind it are `rpc_server` and `rpc_client`.

A unary handler is `(request, call) -> response` or the same as a coroutine; a plain function is answered in the tick in
which its request arrived. A streaming handler is an async generator of responses, or of bytes encoded beforehand; it is
closed when the caller disconnects. `RpcError` answers with its status; any other exception with UNKNOWN and its text.
"""

from fairlead.wire.limits import MAX_MESSAGE_BYTES, Limits
from fairlead.wire.method import Call, Method, Peer, RpcError, Status
from fairlead.wire.rpc_client import Channel
from fairlead.wire.rpc_server import Server

__all__ = ["MAX_MESSAGE_BYTES", "Call", "Channel", "Limits", "Method", "Peer", "RpcError", "Server", "Status"]

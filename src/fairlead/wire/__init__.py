"""The kubelet's sockets: HTTP/2 without I/O, gRPC on asyncio above it, and the messages. Knows nothing of devices."""

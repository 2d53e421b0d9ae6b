"""The HTTP server of the extender: requests with bodies, kept connections, TLS. Knows nothing of pods and nodes."""

"""Our side of the kubelet's sockets: plugin service, registration life cycle, supervisor, who holds what."""

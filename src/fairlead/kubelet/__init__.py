"""Our side of the kubelet's sockets: the plugin service, the registration life cycle, the supervisor, who holds what."""

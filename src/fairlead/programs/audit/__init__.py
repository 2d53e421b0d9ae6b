"""What the audit reads of a node: the kubelet's checkpoint, and which processes have the nodes of devices open."""

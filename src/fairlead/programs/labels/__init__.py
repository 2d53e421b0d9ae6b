"""Feature discovery: what a node's GPUs are, as labels of the node. The catalogue of gpu-feature-discovery."""

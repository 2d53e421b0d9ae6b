"""A true kube-scheduler and API server, with nodes that are only written down, and our extender between them."""

"""`fairlead manifest`: what Kubernetes must be told to run a configuration as a DaemonSet."""

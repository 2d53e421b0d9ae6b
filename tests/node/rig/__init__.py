"""A real Kubernetes node on this machine: starts it, stops it, leaves nothing behind.

Must not know Fairlead: the same node serves any device plugin.
"""

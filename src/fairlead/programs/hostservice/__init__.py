"""Fairlead as a service of the host, started before the kubelet: what it needs there, its unit, its files."""

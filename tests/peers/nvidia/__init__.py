"""NVIDIA's device plugin and feature discovery, on a simulated driver.

`place` is the private root in which a program runs, `kubelet` the other end of its sockets, `replay` asks what a
recording asks, `compare` says what differs. The same place runs NVIDIA's program and ours: see `programs`.
"""

"""Google's device plugin for NVIDIA GPUs (container-engine-accelerators): flags, config file and contract."""

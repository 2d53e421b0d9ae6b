"""A backend of NVIDIA GPUs: whole ones and MIG instances, found and watched through NVML."""

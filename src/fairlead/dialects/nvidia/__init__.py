"""NVIDIA's device plugin, spoken: its flags, environment, config file and names, as a configuration of ours."""

"""volcano-sh/devices, spoken: its flags, config file, names and contract, as a configuration of ours."""

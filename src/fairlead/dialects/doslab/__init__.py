"""PTTQ/kube-device-plugin-mini, spoken: its flags, names and contract, as a configuration of ours."""

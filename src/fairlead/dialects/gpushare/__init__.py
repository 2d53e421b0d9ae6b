"""Aliyun's gpushare device plugin, spoken: its flags, environment, names and contract, as a configuration of ours."""

"""Dialects: another system's command line, config file, names and contract, translated into our one configuration.

Knows nothing of devices or sockets: what comes out is a `Config` as an operator could have written it.
"""

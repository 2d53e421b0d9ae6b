"""Recorded answers of other systems, asked of ours: same settings, same machine, same requests."""

"""The fault campaign: seeded faults against the real daemon and the stand-in, on real sockets, in warped time."""

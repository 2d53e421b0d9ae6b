"""The device-plugin front: one endpoint per resource, its registration life cycle, and the five calls."""

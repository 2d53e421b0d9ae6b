"""The composition root: wires backends, the engine, the fronts and the observers into a daemon, and starts it."""

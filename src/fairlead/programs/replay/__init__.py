"""`fairlead replay`: what a daemon was told is told to the same engine again, and its answers are compared."""

"""The scheduler extender as a program: its start and end, and what it tells Prometheus."""

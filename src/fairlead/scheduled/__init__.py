"""Devices that a scheduler chose: finds the pod that a request is for, and writes back what it was given."""

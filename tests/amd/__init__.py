"""Machines with AMD GPUs, as trees of files below a root of their own."""

"""Nouns of the house: devices, inventories, resources, grants, edits, health, errors, and the ports to the world.

The standard library and msgspec only. Everything here is immutable.
"""

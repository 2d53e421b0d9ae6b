"""One configuration: a YAML file, flags and environment for the common settings, all strict.

`spec` says what can be set, `load` reads it and names every fault, `settings` lists what flags and environment reach.
"""

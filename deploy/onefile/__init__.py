"""Fairlead as one executable file: `python -m deploy.onefile` builds it, `bootstrap.py` is the program inside it."""

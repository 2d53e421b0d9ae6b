"""An API server small enough for unit tests: nodes, pods and others by name, versions, watches, patches, RBAC, faults.

`store.py` holds the objects and what happened to them; `server.py` speaks HTTP for it and misbehaves when told to;
`trouble.py` falls silent.
It shares no code with the client. What a true API server does is checked on the node (tests/node).
"""

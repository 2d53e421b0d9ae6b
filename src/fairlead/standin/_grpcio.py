"""Prepares the import of grpcio: reports what is not installed, and keeps its log off the terminal.

Imported before every other module of this package. Knows nothing of the kubelet.
"""

import importlib.util
import os

if importlib.util.find_spec("grpc") is None or importlib.util.find_spec("google.protobuf") is None:
    raise ImportError("the stand-in kubelet needs grpcio and protobuf; install them with: fairlead[standin]")

# gRPC reads this once, when it is imported. A user who set it wants its output.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

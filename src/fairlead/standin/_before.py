"""What has to happen before gRPC is loaded: say what is missing, and keep its chatter off the terminal.

It comes before every other import of the room. Knows nothing of the kubelet.
"""

import importlib.util
import os

if importlib.util.find_spec("grpc") is None or importlib.util.find_spec("google.protobuf") is None:
    raise ImportError("the stand-in kubelet needs grpcio and protobuf; install them with: fairlead[standin]")

# gRPC reads this once, when it is imported. Whoever set it wants the chatter.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

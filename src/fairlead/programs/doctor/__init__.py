"""`fairlead doctor`: what is wrong with a node for its devices, and what to do about it.

`gather` reads the host, the kubelet, the daemon and the API server, within bounds, and gives `Facts`. `checks` are pure
functions from facts to findings. `findings` has the words of both. Nothing is changed on the node.
"""

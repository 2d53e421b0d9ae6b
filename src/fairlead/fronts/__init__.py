"""The fronts: what others ask of the engine, each in its own protocol. They share the files of the kubelet."""

"""The API server's side: a small client, this node's pods and status. Loaded only by what needs a cluster."""

"""What people can see: a journal of facts, one status snapshot, the daemon's own socket."""

"""`fairlead amd labels`: AMD's node labeller."""

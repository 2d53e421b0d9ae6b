"""What a container gets for a grant: environment, device nodes, mounts, CDI names. Pure."""

"""Other systems' own programs beside ours: the same node, the same questions."""

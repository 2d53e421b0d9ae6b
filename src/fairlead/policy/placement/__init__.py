"""Which slots answer a request that leaves a choice. Pure."""

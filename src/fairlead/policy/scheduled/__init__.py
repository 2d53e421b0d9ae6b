"""Which pod a request is for when a scheduler chose its devices. Pure."""

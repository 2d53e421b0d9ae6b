"""AMD's device plugin: its command line, in our words."""

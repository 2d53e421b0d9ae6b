"""smarter-device-manager: its flags, its config file and its contract."""

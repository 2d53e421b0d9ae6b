"""squat's generic-device-plugin: its flags, its config file and its contract."""

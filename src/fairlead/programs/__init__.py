"""Programs that other systems ship beside their device plugin."""

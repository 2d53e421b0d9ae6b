"""Ready-made fleets: one YAML file each."""

"""Programs that train: one module each, registered in `harness.trainers.registry`."""

"""The training loop, its guard and its checkpoints."""

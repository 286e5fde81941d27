"""Recipes, the training loop and its checkpoints."""

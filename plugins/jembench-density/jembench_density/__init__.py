"""Checks of the density of a model: its normalising constant, its long chains, and its error where p(x) is known."""

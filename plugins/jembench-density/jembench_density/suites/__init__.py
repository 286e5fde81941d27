"""The suite of densities that are known, and its recipe."""

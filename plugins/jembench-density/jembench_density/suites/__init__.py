"""The suite of densities that are known."""

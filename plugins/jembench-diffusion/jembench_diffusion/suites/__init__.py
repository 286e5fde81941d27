"""The recipes that diffusion models are trained with: TOML files in ``recipes``."""

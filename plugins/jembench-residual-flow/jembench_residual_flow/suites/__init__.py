"""The recipes that residual flows are trained with: TOML files in ``recipes``."""

"""The recipes that Glow is trained with: TOML files in ``recipes``."""

"""The recipes of adversarial training: TOML files in ``recipes``."""

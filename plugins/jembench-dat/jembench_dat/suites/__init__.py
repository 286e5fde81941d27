"""The recipes of DAT: TOML files in ``recipes``."""

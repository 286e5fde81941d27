"""The recipes of VERA, as TOML."""

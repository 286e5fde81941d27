"""The recipes that train IGEBM, as TOML."""

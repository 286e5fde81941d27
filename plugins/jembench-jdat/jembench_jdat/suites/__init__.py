"""The recipes of EB-JDAT, as TOML."""

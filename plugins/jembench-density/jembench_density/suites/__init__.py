"""The suite of known densities, as TOML."""

"""The suite of further metrics of generated images, as TOML."""

"""The recipes of energy fine-tuning, as TOML."""

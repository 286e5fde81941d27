"""The recipes of energy fine-tuning and the suite ``openood``, as TOML."""

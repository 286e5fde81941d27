"""The recipes of energy fine-tuning and the suites ``openood`` and ``selective``, as TOML."""

"""Suites, recipes and published numbers, as TOML."""

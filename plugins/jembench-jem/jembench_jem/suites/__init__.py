"""The recipes of jem-factored on digits and of speedrun, as TOML."""

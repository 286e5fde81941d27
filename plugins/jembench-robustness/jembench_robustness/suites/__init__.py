"""The suites of this plugin's metrics, as TOML."""

"""The checks of metrics, by what they are about."""

"""The checks of samplers, by what they are about."""

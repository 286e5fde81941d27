"""The folder that keeps fits and results."""

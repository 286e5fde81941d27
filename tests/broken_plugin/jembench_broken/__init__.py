"""Raises when it is imported, as a plugin does whose own dependency has changed."""

raise RuntimeError("broken on purpose")

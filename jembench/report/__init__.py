"""Tables from the store and the published numbers. Imports no torch."""

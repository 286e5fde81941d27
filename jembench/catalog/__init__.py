"""Specs, the registry of components, and what identifies their code."""

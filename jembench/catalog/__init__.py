"""Specs, the components that there are and their options, and what identifies their code."""

"""Specs, installed components, code identity, trust, limits and validation of files."""

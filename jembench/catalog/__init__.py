"""Specs, installed components and their options, code identity, trust, limits, and the validation
of files.
"""

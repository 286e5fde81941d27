"""Carrying out a plan."""

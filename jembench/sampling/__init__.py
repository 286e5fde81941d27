"""Chains that draw images from an energy: SGLD, persistent chains, and their loop.

Persistent chains have a replay buffer.
"""

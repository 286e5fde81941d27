"""Attacks on classifiers: smallest changes of an image that change its class."""

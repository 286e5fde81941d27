"""The recipe of jem-factored on digits, as data."""

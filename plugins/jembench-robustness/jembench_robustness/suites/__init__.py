"""The suite of the metrics of this plugin, as data."""

"""The report as one HTML page that works without a network."""

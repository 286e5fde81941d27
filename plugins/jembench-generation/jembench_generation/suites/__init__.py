"""The suite of generated images by the metrics since JEM."""

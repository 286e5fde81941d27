"""The suite of generated images by further metrics."""

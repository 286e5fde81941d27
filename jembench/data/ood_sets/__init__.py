"""Images that are not of a dataset: made from its test images, drawn at random, cut from photographs, or another's."""

"""Out-of-distribution images: changed test images, random images, and those of another dataset."""

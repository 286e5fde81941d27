"""Out-of-distribution images: changed test images, random images, and other datasets' images."""

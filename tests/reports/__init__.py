"""Reports render the same results for people and for other programs."""

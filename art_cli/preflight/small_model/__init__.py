"""A small model with random weights, of a base's own architecture."""

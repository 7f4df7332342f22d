"""How a model reads tokens: attention, caches, and the ways in which a family can be read."""

"""Forward passes: attention, caches, and the ways to read a family of models."""

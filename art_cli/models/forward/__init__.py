"""Forward passes over tokens: attention, caches, and the ways that a family allows."""

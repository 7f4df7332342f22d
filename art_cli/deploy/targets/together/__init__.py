"""A dedicated endpoint at Together AI."""

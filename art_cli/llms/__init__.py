"""Models that are called, not trained: through litellm, on an own server, or the run's base."""

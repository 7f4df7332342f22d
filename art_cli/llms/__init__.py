"""Models that are asked, not trained: behind litellm, on an own server, or the run's base."""

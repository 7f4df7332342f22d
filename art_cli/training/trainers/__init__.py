"""What changes the weights: the GRPO step, the warm-up, and what both need."""

"""Trainers: the GRPO step, supervised fine-tuning, and their common parts."""

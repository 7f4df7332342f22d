"""Samplers, which choose the scenarios of a batch: `train.curriculum`."""

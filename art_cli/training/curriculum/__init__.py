"""The choice of scenarios for a batch: `train.curriculum`."""

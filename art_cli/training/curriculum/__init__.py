"""Which scenarios a batch plays: `train.curriculum`."""

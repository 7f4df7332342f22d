"""`art envs check`: checks whether an env is fit for training."""

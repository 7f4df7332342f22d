"""`art envs check`: is an env a task to train on."""

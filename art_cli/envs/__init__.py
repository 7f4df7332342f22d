"""How a task is written: the Env base, its tools, and how a name in a config becomes a class."""

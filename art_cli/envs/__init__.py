"""Tasks: the Env base, its tools, and the classes that names in a config stand for."""

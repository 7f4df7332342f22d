"""Tasks: the Env base class, tools, and resolution of names in a config."""

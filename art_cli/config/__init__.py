"""A YAML file becomes one checked, frozen Experiment, and every mistake in it has its place.

Read `schema.py` for what there is to set, `load.py` for the way from a file to an Experiment.
"""

"""Loading of a YAML file into one checked, frozen Experiment, with the place of every mistake.

`schema.py` has the settings; `load.py` is the way from a file to an Experiment.
"""

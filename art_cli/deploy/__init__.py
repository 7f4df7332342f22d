"""A checkpoint goes to where it is served, once however often it is asked for.

`base.py` has the nouns and the Protocol, `lifecycle.py` what holds for every target.
"""

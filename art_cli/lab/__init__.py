"""The lab: which of several configs learns better, over paired seeds, and from what on one knows.

`candidates.py` reads what is compared, `trials.py` runs it, `curves.py` reads what each run came
to, `paired.py` says when the difference is known, `findings.py` puts it into numbers and words.
"""

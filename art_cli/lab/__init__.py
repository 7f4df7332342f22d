"""The lab: which of several configs learns better, over paired seeds, and from what on one knows;
and which values of some keys are best.

`fleet.py` runs them, here or on clusters. Of a comparison, `candidates.py` reads what is compared,
`trials.py` runs a seed, `curves.py` reads what each run came to, `paired.py` says when the
difference is known, `standings.py` puts it into numbers and words. Of a sweep, `space.py` reads
what is tried, `study.py` is Optuna, `sweep.py` runs the trials, `ranking.py` says what they have
found.
"""

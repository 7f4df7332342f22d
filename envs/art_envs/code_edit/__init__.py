"""Mending small programs: find the fault, edit it by syntax node, run the tests.

env.py         the env: its tools, its levels, its reward
scenarios.py   repositories with faults, and their tests
syntax.py      trees of a source file: symbols, nodes, edits
faults.py      the faults that a function can be given, each tried
kinds.py       what the functions are: names, cases
numbers.py dates.py lists.py texts.py objects.py   the functions, in each language
sandbox/       runs what a model wrote
"""

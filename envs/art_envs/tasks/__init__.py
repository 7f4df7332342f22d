"""Tasks that stand in a file: a question and its answer a row, without any Python.

env.py         the env: it asks what a row asks, and grades what is said    (`use: dataset`)
settings.py    what `env.args` may say
rows.py        files and data sets become rows, each with its place
columns.py     what stands in a row: cells, prompts, options, answers
splits.py      which rows are held out
scenarios.py   rows become scenarios, or a mistake with its FILE:LINE
with_tools.py  what the envs share that have tools too: mcp (art_envs/mcp_tools/), openapi
grading.py     is an answer right; mathematics.py asks math-verify in a process of its own
"""

"""Runs programs that a model wrote, behind walls that the kernel holds.

pool.py       what the env asks: runs a program's functions, keeps what came of it
runner.py     a process of its own, which starts each program and watches it
walls.py      what a program may not do: Landlock, seccomp, limits
languages.py  how a language's functions are called from within
"""

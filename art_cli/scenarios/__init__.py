"""`art scenarios`: tasks from tools alone, as a file that the envs `mcp` and `openapi` play.

source.py    sessions with the tools of an MCP server or an HTTP API that may be called
values.py    arguments from a JSON schema: what it allows, what results have shown
exact.py     calls whose result repeats in further sessions, without any model
writer.py    what a model is asked for: tasks, answers, a rubric
written.py   tasks that a model writes, each tried before it is kept
guesses.py   answers that need no call: they follow from the question, or are always the same
machine.py   answers that hold on one machine, or today, alone
support.py   whether results hold an answer that a model gives
rows.py      tasks as rows: questions, splits by content, the file
"""

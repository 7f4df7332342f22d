"""`env.python`: an env in a separate interpreter, whose packages may conflict with ours.

    to its stdin     {"id": 7, "do": "call", "episode": 3, "name": "look", "arguments": {}}
                     {"do": "cancel", "of": 7}
    from its stdout  {"id": 7, "value": {"text": "It is dark."}}
                     {"id": 7, "error": {"type": "ToolError", "text": "no such room"}}

`remote.py` creates the env's stand-in class here. `process.py` runs the process, and restarts it if
it dies. `replay.py` moves episodes to the new process. `serve.py` runs inside it. One process
serves all episodes of its env. The other interpreter needs Python 3.11, pydantic and the env's own
packages. It imports art_cli from here.
"""

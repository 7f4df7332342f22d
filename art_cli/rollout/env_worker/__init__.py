"""`env.python`: an env in an interpreter of its own, with packages that need not go with ours.

    to its stdin     {"id": 7, "do": "call", "episode": 3, "name": "look", "arguments": {}}
                     {"do": "cancel", "of": 7}
    from its stdout  {"id": 7, "value": {"text": "It is dark."}}
                     {"id": 7, "error": {"type": "ToolError", "text": "no such room"}}

`remote.py` makes the class that stands for the env here, `process.py` runs the process and starts
another when it died, `replay.py` moves the episodes there, `serve.py` is what runs in it. One
process serves all episodes of its env. It needs Python 3.11 and pydantic there, beside the env's
own packages: art_cli is lent to it.
"""

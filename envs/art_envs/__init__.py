"""The task environments that come with `art`, each one file that is meant to be read.

    order_desk     tools under a policy: look up, then change or refuse    (the quickstart)
    2048           a long game of one player
    tic_tac_toe    a short game against an opponent
    nim            a game of two seats, which can play against itself
    code_edit/     small programs to mend, run behind walls
    tasks/         questions and answers from a file             (`use: dataset`)
    mcp_tools/     the same, with the tools of an MCP server     (`use: mcp`)
    adapters/      what other libraries have: Reasoning Gym, Gymnasium, TextArena

Write your own in the same way: one class, `start`, `reply` or tools, and `score`.
"""

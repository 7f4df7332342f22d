"""The common part of customer-service tasks: a database, a goal, a user, and the scoring of an
episode.

A domain (`art_envs.retail`, `art_envs.airline`) is a subclass of `desk.ServiceDesk` with its tools,
a generated database, a policy and goals. Read the files in this order:

    store.py   one episode's view of the shared database, and what changed in it
    goal.py    what a customer wants, and the right way to serve them
    asking.py  what an assistant asks for in words; values.py: when a value is the right one
    user.py    the customer: scripted, or played by a language model
    episode.py one conversation, and what an assistant commits itself to; arithmetic.py: sums
    desk.py    the env: its data, its score and its demonstrations
    gates.py   what every generated scenario must pass
    build.py   from a domain's random goals to its scenarios: mix, splits, gates
    cache.py   generated data on disk
"""

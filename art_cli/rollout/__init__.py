"""An env and an agent make a trajectory.

`rollout.py` is one episode, and the boundary that an episode's own errors do not cross; `groups.py`
is many at once.
"""

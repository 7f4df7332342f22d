"""Rollouts: an env and an agent produce a trajectory.

`rollout.py` plays one episode and turns the episode's own errors into a failed trajectory.
`groups.py` plays many episodes concurrently.
"""

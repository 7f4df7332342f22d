"""Views of a run in a terminal: groups, curves, two runs side by side, replays."""

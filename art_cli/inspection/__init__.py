"""What a person looks at in a terminal: groups, curves, two runs beside each other, replays."""

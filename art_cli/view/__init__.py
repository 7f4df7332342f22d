"""The page of runs, served locally with live updates or written to one file."""

"""Checks before anything costs money: does it fit, is all there, does it run."""

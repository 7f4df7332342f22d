"""Backends: a run on this machine, or on machines that SkyPilot rents."""

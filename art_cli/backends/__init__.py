"""Where a run happens: this machine, or machines that SkyPilot rents."""

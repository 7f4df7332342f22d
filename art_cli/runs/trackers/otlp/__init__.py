"""Trajectories as OpenTelemetry spans over OTLP/HTTP, in the GenAI semantic conventions."""

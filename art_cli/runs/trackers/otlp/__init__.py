"""Trajectories as OpenTelemetry spans, over OTLP/HTTP, by the conventions for generative AI."""

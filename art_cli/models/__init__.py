"""Models: loading, adapters, forward passes, and the policy that is trained."""

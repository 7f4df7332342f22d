"""The engine on the trainer's own weights, which batches episodes as rows of a KV cache."""

"""The engine on the trainer's own weights: rows of one KV cache, batched over episodes."""

"""A Modelfile beside the merged weights, with a chat template in Go's language."""

"""vLLM servers, here or on separate nodes, and the transfer of new weights to them."""

"""vLLM servers, here or on nodes of their own, and how new weights reach them."""

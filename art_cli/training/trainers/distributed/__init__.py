"""One update shared by several processes, each with a part of the weights."""

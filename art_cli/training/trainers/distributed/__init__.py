"""Updates shared by several processes, each with a shard of the weights."""

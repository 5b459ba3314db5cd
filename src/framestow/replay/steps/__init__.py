"""Store the steps of a memory: their indices, episodes and n-step returns, and the order of eviction."""

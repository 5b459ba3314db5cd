"""The replay memory: steps, episodes, samplers, batches, and the store on disk."""

"""Batches as PyTorch tensors: converted, loaded ahead, augmented. ``integrations.torch`` is its public face."""

"""Batches, sequences and episodes out of a memory."""

"""Shared by the drop-in buffers: converts pairs of stacked observations into the steps of a memory."""

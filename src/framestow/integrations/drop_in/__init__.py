"""What the buffers that stand in for other libraries' share: pairs of stacked observations become a memory's steps."""

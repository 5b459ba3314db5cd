"""A memory on the disk: what a store holds, how it is written, and how it is read."""

"""A memory on disk: what a store holds, how it is written, read, verified and repaired."""

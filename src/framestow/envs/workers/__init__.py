"""The vector environment whose environments run in worker processes."""

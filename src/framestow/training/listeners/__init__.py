"""What watches a run: each listener takes events and leaves the loop alone."""

"""Learn from batches; never see an environment or a file."""

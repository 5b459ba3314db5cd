"""The run: the loop, its listeners, checkpoints and the run folder."""

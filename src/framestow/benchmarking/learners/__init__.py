"""What a learner asks of a memory: batches drawn uniformly and by priority, of n steps, and of sequences."""

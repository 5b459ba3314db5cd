"""From what a memory holds to what a learner gets: draws, look-ups, batches."""

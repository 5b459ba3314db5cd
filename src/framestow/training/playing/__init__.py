"""Games played with what a run has learnt: to see how well, or to see."""

"""Store frames by environment and position, without knowledge of episodes or rewards."""

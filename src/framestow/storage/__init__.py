"""Store frames by stream and position, without knowledge of episodes or rewards."""

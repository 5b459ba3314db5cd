"""Steps, episodes, and what may be drawn."""

"""Observations of a library's ring of slots, each slot knowing by a number where its observation is."""

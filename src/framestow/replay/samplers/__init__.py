"""Samplers: they choose the transitions of a batch, and see neither frames nor rewards."""

"""Stores: save a memory to a folder, keep it there, load, verify and repair it."""

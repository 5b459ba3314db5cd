"""Environments that tell the truth, and the Recorder that feeds a memory from them."""

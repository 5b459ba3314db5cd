"""A package, so that ``import training`` finds this folder rather than ``benchmarks/training.py``."""

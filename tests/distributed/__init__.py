"""A package, so that ``import distributed`` finds this folder rather than ``benchmarks/distributed.py``."""

"""Modules whose libraries the tests' environment need not have: ``make jax`` runs their examples."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("jax") else ["framestow/integrations/jax.py"]

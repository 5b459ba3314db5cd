"""Leaves out the examples of integrations whose library is not installed: `make jax` and `make libraries` run those."""

from importlib.util import find_spec

MODULES = {"jax": "jax.py", "tianshou": "integrations/tianshou"}

collect_ignore = [f"framestow/{module}" for library, module in MODULES.items() if not find_spec(library)]

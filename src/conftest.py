"""Leaves out the examples of integrations whose library is not installed: `make jax` and `make libraries` run those."""

from importlib.util import find_spec

collect_ignore = [f"framestow/integrations/{name}.py" for name in ("jax", "tianshou") if not find_spec(name)]

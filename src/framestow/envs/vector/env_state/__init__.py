"""State of any environment with its wrappers, as plain values: taken, put back, or refused with the reason."""

from framestow.envs.vector.env_state.layers import put_state, take_state, why_no_state

__all__ = ["put_state", "take_state", "why_no_state"]

"""Replay memory for deep reinforcement learning from pixels."""

__version__ = "0.1.0"

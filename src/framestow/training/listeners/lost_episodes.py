"""Tells of episodes that were cut off where nobody saw their end."""

from __future__ import annotations

from collections.abc import Callable

from framestow.training.events import EpisodeLost, Event


class LostEpisodes:
    """Hands a sentence to ``warn`` for every episode that was lost with its worker process, or when resuming."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn

    def take(self, event: Event) -> None:
        """Tell of a lost episode."""
        if isinstance(event, EpisodeLost):
            self._warn(
                f"step {event.agent_steps:,}: environment {event.stream} lost its episode ({event.reason}); what was "
                "recorded of it stays, a new one begins and the run goes on"
            )

    def close(self) -> None:
        """Nothing is open."""

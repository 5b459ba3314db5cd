"""Tells of episodes that were cut off where nobody saw their end."""

from __future__ import annotations

from collections.abc import Callable

from framestow.training.events import EpisodesLost, Event


class LostEpisodes:
    """Hands ``warn`` a sentence about episodes that were lost with their worker process, or when resuming."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn

    def take(self, event: Event) -> None:
        """Tell of lost episodes."""
        if isinstance(event, EpisodesLost):
            self._warn(
                f"step {event.agent_steps:,}: {event.reason}; the episodes of environments "
                f"{', '.join(map(str, event.env_ids))} end there, what was recorded of them stays, and the run goes on"
            )

    def close(self) -> None:
        """Nothing is open."""

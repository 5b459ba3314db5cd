"""What a listener is."""

from __future__ import annotations

from typing import Protocol

from framestow.training.events import Event


class Listener(Protocol):
    """Watches a run: takes every event in order, and changes nothing that the loop depends on."""

    def take(self, event: Event) -> None:
        """Take notice of ``event``. An error raised here ends the run."""

    def close(self) -> None:
        """Finish what is open. Called once, also after an error."""

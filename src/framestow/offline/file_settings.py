"""What a file of arrays says of the memory that it was exported from: ``FileSettings``."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any, NamedTuple

from framestow.checks import real_number, whole_number
from framestow.replay.memory import ReplayMemory
from framestow.replay.settings.action_spec import ActionSpec
from framestow.replay.settings.step_fields import NO_EXTRAS, ExtrasSpec


class FileSettings(NamedTuple):
    """What a file says of the memory that it was exported from, as far as it is there."""

    discount: float | None = None
    n_step: int | None = None
    action: ActionSpec | None = None
    extras: ExtrasSpec = NO_EXTRAS

    @classmethod
    def of_memory(cls, memory: ReplayMemory) -> FileSettings:
        """Return those of a memory."""
        return cls(memory.discount, memory.n_step, memory.inner.settings.action, memory.inner.settings.extras)

    def text(self) -> str:
        """Return them as JSON."""
        values: dict[str, Any] = {"discount": self.discount, "n_step": self.n_step} | self.extras.state()
        return json.dumps(values | {"action_space": None if self.action is None else asdict(self.action)})

    @classmethod
    def of_text(cls, text: str) -> FileSettings:
        """Return the settings that ``text`` returned; raise ``ValueError`` or ``TypeError`` for other texts."""
        values = json.loads(text)
        action, discount, n_step = (values[name] for name in ("action_space", "discount", "n_step"))
        rule = "it is that of a memory"
        return cls(
            None if discount is None else real_number("discount", discount, 0, 1, rule=rule),
            None if n_step is None else whole_number("n_step", n_step, 1, rule=rule),
            None if action is None else ActionSpec.from_state(action),
            ExtrasSpec.from_state(values),
        )

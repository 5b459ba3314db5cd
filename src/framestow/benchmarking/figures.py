"""What a measurement came to."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class SystemFigures:
    """One system's row of the table."""

    name: str
    setting: str
    version: str
    gives_up: str
    transitions: int
    bytes_per_transition: float
    sample_us: float
    append_us: float | None
    """Median over stretches of appends, for one step of one stream; ``None`` for the bare copy."""
    torch_threads: int | None = None
    """With how many threads PyTorch was the quicker; ``None`` where it does not matter."""

    @property
    def description(self) -> str:
        """Name, version, setting and what is given up, in one line."""
        threads = "" if self.torch_threads is None else f", torch threads: {self.torch_threads}"
        loss = f"; gives up {self.gives_up}" if self.gives_up else ""
        return f"{' '.join(filter(None, (self.name, self.version)))}: {self.setting}{threads}{loss}"


@dataclass(frozen=True)
class LeftOut:
    """A system without figures, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class BenchFigures:
    """Everything that was measured in one run; the first system is framestow's default storage."""

    game: str
    preset: str
    frame_shape: tuple[int, ...]
    stack: int
    batch_size: int
    threads: int
    frames_played: int
    rounds: int
    seed: int
    bare_copy: SystemFigures
    systems: tuple[SystemFigures, ...]
    left_out: tuple[LeftOut, ...]
    append_us_of_8_streams: float

    def of_the_bare_copy(self, system: SystemFigures) -> float:
        """How many times the bare copy's time a batch takes."""
        return system.sample_us / self.bare_copy.sample_us

    def times_our_bytes(self, system: SystemFigures) -> float:
        """How many times the bytes of framestow's default storage."""
        return system.bytes_per_transition / self.systems[0].bytes_per_transition

    def times_our_time(self, system: SystemFigures) -> float:
        """How many times the sampling time of framestow's default storage."""
        return system.sample_us / self.systems[0].sample_us

    def to_dict(self) -> dict[str, Any]:
        """All figures with their ratios, as JSON has them."""
        plain = asdict(self)
        rows = []
        for system in (self.bare_copy, *self.systems):
            ratios = {
                "sample_of_bare_copy": self.of_the_bare_copy(system),
                "bytes_of_framestow": self.times_our_bytes(system),
                "sample_of_framestow": self.times_our_time(system),
            }
            rows.append({**asdict(system), **ratios})
        plain["bare_copy"], *plain["systems"] = rows
        return plain

"""``Tracks``: the numbers of the arrays of all environments, each of which has segments of its own."""

from __future__ import annotations

from dataclasses import dataclass

from framestow.interface import cached_property


@dataclass(frozen=True)
class Tracks:
    """Array k of environment e is track ``k * num_envs + e``.

    >>> tracks = Tracks(num_arrays=2, num_envs=3)
    >>> tracks.all, tracks.env_of(4), tracks.array_of(4), list(tracks.of_env(1))
    (range(0, 6), 1, 1, [1, 4])
    """

    num_arrays: int
    num_envs: int

    @cached_property
    def all(self) -> range:
        """All tracks."""
        return range(self.num_arrays * self.num_envs)

    def env_of(self, track: int) -> int:
        """Return the environment of a track."""
        return track % self.num_envs

    def array_of(self, track: int) -> int:
        """Return the number of the array of a track."""
        return track // self.num_envs

    def of_env(self, env_id: int) -> range:
        """Return the tracks of an environment, in the order of its arrays."""
        return range(env_id, self.all.stop, self.num_envs)

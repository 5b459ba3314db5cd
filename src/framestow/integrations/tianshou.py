"""Replay buffers for Tianshou, in about a hundredth of the memory; tested with its version 2.0.1.

Tianshou's collectors, algorithms and trainers take these in the place of its own buffers of the same names: they are
subclasses, take the same arguments and draw the same indices from the same generators. docs/migration.md has figures,
and what behaves better.

=================================  ====================================================
``ReplayBuffer``                   of one environment
``VectorReplayBuffer``             of several
``PrioritizedReplayBuffer``        with priorities, as Rainbow draws; of one environment
``PrioritizedVectorReplayBuffer``  the same of several
=================================  ====================================================
"""

from __future__ import annotations

from typing import Any

from tianshou import data as tianshou

from framestow.errors import InvalidSettingsError
from framestow.integrations.drop_in.tested_versions import warn_of_untested_version
from framestow.integrations.ring_observations.numbered_slots import (
    NumberedSlots,
    NumberedSlotsOfParts,
    PrioritizedNumberedSlots,
)

__all__ = ["PrioritizedReplayBuffer", "PrioritizedVectorReplayBuffer", "ReplayBuffer", "VectorReplayBuffer"]

warn_of_untested_version("tianshou", "2.0", "2.0")


class ReplayBuffer(NumberedSlots):
    """What Tianshou's collectors and algorithms take for one environment.

    The arguments up to ``random_seed`` are Tianshou's. ``stack_num`` of 1 takes observations as they come, of which the
    memory keeps each frame once where they are stacks. More stacks single frames, those that come or, with
    ``save_only_last_obs``, the newest of each stack that comes. ``ignore_obs_next`` saves nothing here and loses
    nothing: what a step led to is kept as one frame more in an episode.

    ``frame_stack``: of how many frames observations are stacks, where the buffer stacks none; ``None`` finds out.
    ``threads``: how many unpack a batch. ``storage``: ``"packed"``, or ``"raw"`` for frames as they are, each once.

    Raises ``InvalidSettingsError`` for what cannot work, ``InvalidStepError``, before it is stored, for observations
    that are not numbers, or of another shape or dtype than those before.
    """

    def __init__(
        self,
        size: int,
        stack_num: int = 1,
        ignore_obs_next: bool = False,
        save_only_last_obs: bool = False,
        sample_avail: bool = False,
        random_seed: int = 42,
        *,
        frame_stack: int | None = None,
        threads: int = 1,
        storage: str = "packed",
    ) -> None:
        tianshou.ReplayBuffer.__init__(
            self, size, stack_num, ignore_obs_next, save_only_last_obs, sample_avail, random_seed
        )
        self.keep_observations(1, self.maxsize, frame_stack, threads, storage)


class PrioritizedReplayBuffer(PrioritizedNumberedSlots, tianshou.PrioritizedReplayBuffer):  # type: ignore[misc]
    """A ``ReplayBuffer`` that draws by priority, as Tianshou's does; arguments as of both."""

    def __init__(
        self,
        size: int,
        alpha: float,
        beta: float,
        weight_norm: bool = True,
        *,
        stack_num: int = 1,
        ignore_obs_next: bool = False,
        save_only_last_obs: bool = False,
        sample_avail: bool = False,
        random_seed: int = 42,
        frame_stack: int | None = None,
        threads: int = 1,
        storage: str = "packed",
    ) -> None:
        tianshou.PrioritizedReplayBuffer.__init__(
            self,
            size,
            alpha,
            beta,
            weight_norm,
            stack_num=stack_num,
            ignore_obs_next=ignore_obs_next,
            save_only_last_obs=save_only_last_obs,
            sample_avail=sample_avail,
            random_seed=random_seed,
        )
        self.keep_observations(1, self.maxsize, frame_stack, threads, storage)


class VectorReplayBuffer(NumberedSlotsOfParts, tianshou.VectorReplayBuffer):  # type: ignore[misc]
    """What Tianshou's collectors and algorithms take for several environments; ``kwargs`` are ``ReplayBuffer``'s."""

    def __init__(
        self,
        total_size: int,
        buffer_num: int,
        *,
        frame_stack: int | None = None,
        threads: int = 1,
        storage: str = "packed",
        **kwargs: Any,
    ) -> None:
        parts = [ReplayBuffer(_part_size(total_size, buffer_num), **kwargs) for _ in range(buffer_num)]
        tianshou.ReplayBufferManager.__init__(self, parts)
        self.share_observations(frame_stack, threads, storage)


class PrioritizedVectorReplayBuffer(
    PrioritizedNumberedSlots,
    NumberedSlotsOfParts,
    tianshou.PrioritizedVectorReplayBuffer,  # type: ignore[misc]
):
    """A ``VectorReplayBuffer`` that draws by priority, as Tianshou's does; ``kwargs`` are its parts'."""

    def __init__(
        self,
        total_size: int,
        buffer_num: int,
        *,
        frame_stack: int | None = None,
        threads: int = 1,
        storage: str = "packed",
        **kwargs: Any,
    ) -> None:
        parts = [PrioritizedReplayBuffer(_part_size(total_size, buffer_num), **kwargs) for _ in range(buffer_num)]
        tianshou.PrioritizedReplayBufferManager.__init__(self, parts)
        self.share_observations(frame_stack, threads, storage)


def _part_size(total_size: int, buffer_num: int) -> int:
    if buffer_num < 1:
        raise InvalidSettingsError(f"buffer_num is {buffer_num}: a vector buffer has at least 1 part")
    return -(-total_size // buffer_num)

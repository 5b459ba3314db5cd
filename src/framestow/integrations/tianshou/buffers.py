"""Tianshou's buffers, by its constructors: what they are is in ``numbered_slots``."""

from __future__ import annotations

from typing import Any

from tianshou.data import CachedReplayBuffer as TianshouCached
from tianshou.data import PrioritizedReplayBuffer as TianshouPrioritized
from tianshou.data import PrioritizedReplayBufferManager, ReplayBufferManager
from tianshou.data import PrioritizedVectorReplayBuffer as TianshouPrioritizedVector
from tianshou.data import ReplayBuffer as TianshouBuffer
from tianshou.data import VectorReplayBuffer as TianshouVector

from framestow.errors import InvalidSettingsError
from framestow.integrations.tianshou.numbered_slots import (
    NumberedSlots,
    NumberedSlotsOfParts,
    PrioritizedNumberedSlots,
)


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
        TianshouBuffer.__init__(self, size, stack_num, ignore_obs_next, save_only_last_obs, sample_avail, random_seed)
        self.keep_observations([self.maxsize], frame_stack, threads, storage)


class PrioritizedReplayBuffer(PrioritizedNumberedSlots, TianshouPrioritized):  # type: ignore[misc]
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
        TianshouPrioritized.__init__(
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
        self.keep_observations([self.maxsize], frame_stack, threads, storage)


class VectorReplayBuffer(NumberedSlotsOfParts, TianshouVector):  # type: ignore[misc]
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
        size = _part_size(total_size, buffer_num)
        parts = [ReplayBuffer(size, **kwargs) for _ in range(buffer_num)]
        ReplayBufferManager.__init__(self, parts)
        self.share_observations(frame_stack, threads, storage)


class PrioritizedVectorReplayBuffer(
    PrioritizedNumberedSlots,
    NumberedSlotsOfParts,
    TianshouPrioritizedVector,  # type: ignore[misc]
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
        size = _part_size(total_size, buffer_num)
        parts = [PrioritizedReplayBuffer(size, **kwargs) for _ in range(buffer_num)]
        PrioritizedReplayBufferManager.__init__(self, parts)
        self.share_observations(frame_stack, threads, storage)


class CachedReplayBuffer(NumberedSlotsOfParts, TianshouCached):  # type: ignore[misc]
    """Episodes that move into ``main_buffer``, a ``ReplayBuffer`` of this module's, when they end."""

    def __init__(
        self,
        main_buffer: ReplayBuffer,
        cached_buffer_num: int,
        max_episode_length: int,
        *,
        frame_stack: int | None = None,
        threads: int = 1,
        storage: str = "packed",
    ) -> None:
        if not isinstance(main_buffer, ReplayBuffer) or cached_buffer_num < 1:
            raise InvalidSettingsError(
                f"main_buffer is a {type(main_buffer).__name__}, cached_buffer_num {cached_buffer_num}: they must be a "
                "ReplayBuffer of framestow.integrations.tianshou and at least 1"
            )
        cached = [ReplayBuffer(max_episode_length, **main_buffer.options) for _ in range(cached_buffer_num)]
        ReplayBufferManager.__init__(self, [main_buffer, *cached])
        self.main_buffer, self.cached_buffers = self.buffers[0], self.buffers[1:]
        self.cached_buffer_num = cached_buffer_num
        self.share_observations(frame_stack, threads, storage)

    def _streams_that_step(self, buffer_ids: Any) -> tuple[list[int], bool]:
        streams = range(self.cached_buffer_num) if buffer_ids is None else buffer_ids
        return [int(stream) + 1 for stream in streams], False  # the main buffer's is the first


def _part_size(total_size: int, buffer_num: int) -> int:
    if buffer_num < 1:
        raise InvalidSettingsError(f"buffer_num is {buffer_num}: a vector buffer has at least 1 part")
    return -(-total_size // buffer_num)
